"""Text in, text out, on one engine: chat template, tokenizer, door, detokenizer, times.

Knows no wire format. Everything about one request that is measured is measured in `stream`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from octavo.base.errors import EngineDeadError, EngineError, RequestError
from octavo.base.log import logger
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.engine.client import AsyncEngine
from octavo.engine.door import Door
from octavo.engine.history import History, Outline, Record
from octavo.grammar.service import CompileService
from octavo.serve.explain import explain, in_a_line
from octavo.serve.metrics import Metrics, Watch
from octavo.serve.openai.wire import CacheReport
from octavo.text.assembler import Assembler, Interval, TextDelta
from octavo.text.bad_words import spelled
from octavo.text.renderer import Renderer

T = TypeVar("T")
LONG_PROMPT = 4096  # characters, or tokens; about a millisecond's work. Longer ones get a thread
_DEFAULTABLE = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
_OURS = frozenset(  # what a template is given, and the renderer's own words
    {
        "messages",
        "tools",
        "documents",
        "add_generation_prompt",
        "add_special_tokens",
        "continue_final_message",
        "chat",
        "self",
    }
)
_log = logger("serve")


class Generation:
    """One engine with the text that belongs to it."""

    def __init__(
        self,
        engine: AsyncEngine,
        renderer: Renderer,
        metrics: Metrics,
        *,
        structures: CompileService | None = None,
        seed: int | None = None,
        log_requests: bool = False,
    ) -> None:
        """`structures`: where those that requests ask for are compiled first; none where that is
        left to the engine."""
        self.tokenizer = renderer.tokenizer
        self.renderer = renderer
        self.metrics = metrics
        self.history = History()
        self._engine = engine
        self._door = Door(engine.info, seed)
        self._structures = structures
        self._log_requests = log_requests

    @property
    def dead(self) -> str | None:
        return self._engine.dead

    @property
    def max_model_len(self) -> int:
        return self._engine.info.max_model_len

    def check_vocabulary(self, ids: Iterable[int], field: str) -> None:
        """Raises:
        RequestError: one of the token ids is none of the model's.
        """
        self._door.check_vocabulary(field, ids)

    async def encode(
        self, text: str, add_special_tokens: bool = True, field: str = "prompt"
    ) -> list[int]:
        """Raises:
        RequestError: the text is no text, or could not fit whatever its tokens are.
        """
        self._check_size(len(text), field)
        return await _aside_if_long(
            len(text), lambda: self.tokenizer.encode(text, add_special_tokens)
        )

    async def encode_chat(
        self,
        messages: list[dict[str, Any]],
        variables: dict[str, Any],
        *,
        add_special_tokens: bool = False,
        **options: Any,
    ) -> list[int]:
        """Token ids of a conversation as the model's template writes it.

        `options` as in `ChatTemplate.render`; `variables` are the client's own for the template.

        Raises:
            RequestError: there is no template, or it does not take these messages.
        """
        if ours := _OURS & variables.keys():
            raise RequestError(
                f"chat_template_kwargs must not name {min(ours)}", "chat_template_kwargs"
            )

        self._check_size(sum(len(str(turn.get("content"))) for turn in messages), "messages")
        return await _aside_if_long(
            len(str(messages)) + len(str(options.get("tools"))),
            lambda: self.renderer.encode_chat(
                messages, add_special_tokens=add_special_tokens, **options, **variables
            ),
        )

    @property
    def max_logprobs(self) -> int:
        """That a request may ask for; -1: any number."""
        return self._engine.info.max_logprobs

    async def params(self, given: dict[str, Any], max_tokens: int | None) -> SamplingParams:
        """What was given, else the model's own defaults, else the API's.

        `max_tokens` is the API's default for that field; None: to the end of the context. The
        model's controls of chance are not for beams.

        Raises:
            RequestError: a value is impossible.
        """
        own = self._engine.info.generation_defaults
        names = ("max_tokens",) if given.get("use_beam_search") else _DEFAULTABLE
        defaults = {name: own[name] for name in names if own.get(name) is not None}
        params = SamplingParams(**({"max_tokens": max_tokens} | defaults | given))
        return await self.settled(params)

    async def settled(self, params: SamplingParams) -> SamplingParams:
        """With a seed, one for all prompts of a request, and with the tokens of bad words.

        Raises:
            RequestError: a bad word is no text.
        """
        if params.seed is None:
            params = msgspec.structs.replace(params, seed=self._door.draw_seed())
        size = sum(map(len, params.bad_words or ()))
        return await _aside_if_long(size, lambda: spelled(params, self.tokenizer))

    async def check_structure(self, params: SamplingParams) -> None:
        """Raises:
        RequestError: no answer can have the structure, or it takes too long to find out.
        """
        if params.structured_outputs is not None and self._structures is not None:
            await self._structures.check(params.structured_outputs, params.thinking)

    def request(self, prompt: list[int], params: SamplingParams, **labels: Any) -> Request:
        """Of settled `params`; `labels`: request_id, priority, cache_salt, owner, fork_of.

        Raises:
            RequestError: the engine could not take it.
            EngineDeadError: the engine is gone.
        """
        if self._engine.dead is not None:
            raise EngineDeadError(f"the engine is gone: {self._engine.dead}")
        return self._door.request(prompt, params, **labels)

    async def stream(
        self, request: Request, outline: Outline | None = None
    ) -> AsyncGenerator[TextDelta, None]:
        """The answers, piece by piece; the last one of each has a finish reason. Closing it early
        aborts those that have none. `outline`: for explanations of the prompt.

        Raises:
            EngineError: the request was lost.
        """
        watch = self.metrics.watch(len(request.prompt_token_ids))
        texts = [Assembler(request, self.tokenizer) for _ in range(request.params.n)]
        record = self.history.begin(request, outline)
        unfinished = request.params.n
        reason = "abort"  # unless it ends otherwise: the reader went away
        interval = Interval(request)
        try:
            async with aclosing(self._engine.generate(request)) as deltas:
                async for delta in deltas:
                    piece = texts[delta.index].feed(delta)
                    watch.came(piece.index, len(piece.token_ids))
                    record.add(piece)
                    _raise_if_lost(piece)
                    if piece.cut:
                        self._engine.abort(request.request_id, piece.index)
                    if piece.finish_reason:
                        unfinished -= 1
                        reason = reason if unfinished else piece.finish_reason
                    if (joined := interval.take(piece)) is not None:
                        yield joined
        except Exception:
            reason = "error"
            raise
        finally:
            self.history.end(request.request_id)
            self._ended(record, watch, reason)

    async def explain(self, record: Record, request_id: str) -> CacheReport:
        """What the cache held of a record's prompt; `request_id` as its owner knows it."""
        return await _aside_if_long(
            len(record.prompt), lambda: explain(self.tokenizer, record, request_id)
        )

    def _check_size(self, size: int, field: str) -> None:
        """Tokenizing megabytes takes seconds and a gigabyte, and holds up other answers."""
        if size <= LONG_PROMPT:
            return
        most = self.max_model_len * self.tokenizer.longest_token
        if size > most:
            raise RequestError(
                f"{field}: {size} characters are more than {most}, the most that "
                f"{self.max_model_len} tokens could spell",
                field,
            )

    def _ended(self, record: Record, watch: Watch, reason: str) -> None:
        seconds = watch.ended(reason)
        request_id = record.request.request_id
        if record.has_begun and _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s", in_a_line(explain(self.tokenizer, record, request_id)))
        if self._log_requests:
            _log.info(
                "%s: %d prompt tokens, %d generated, %s after %.3f s",
                request_id,
                len(record.prompt),
                watch.tokens,
                reason,
                seconds,
            )


async def _aside_if_long(length: int, work: Callable[[], T]) -> T:
    """`work()`, in a thread where the text is long, so that no stream waits for it."""
    return work() if length <= LONG_PROMPT else await asyncio.to_thread(work)


def _raise_if_lost(piece: TextDelta) -> None:
    if piece.finish_reason == "error":
        raise EngineError(piece.error or "the request was lost")
