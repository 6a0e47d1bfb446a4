"""An engine that says what a test tells it to, and the text of a tiny byte-level model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from octavo.base.errors import EngineDeadError
from octavo.base.kv import KVLayout
from octavo.base.output import Delta, EngineStats, FinishReason, Structured
from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.engine.info import EngineInfo
from octavo.text.chat_template import ChatTemplate
from octavo.text.renderer import Renderer
from octavo.text.spelling import BYTE_ALPHABET
from octavo.text.tokenizer import Tokenizer

EOS = 257
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")  # a token each, from 258 on
VOCAB_SIZE = 300  # rows of the embedding: more than there are tokens, as in padded models
MAX_MODEL_LEN = 512
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# With reasoning and calls, as Qwen's models have them.
REASONING_AND_CALLS = """{% if tools %}<|im_start|>system
You may call:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}
For each call, write <tool_call>
{"name": <name>, "arguments": <object>}
</tool_call><|im_end|>
{% endif %}
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}
{{- m.content -}}
{%- for call in m.tool_calls or [] %}
{{- "\\n" if m.content or not loop.first }}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""


def byte_renderer(template: str | None = CHATML) -> Renderer:
    """Token id = byte; 256 and 257 are ChatML's marks, and `MARKS` follow."""
    vocab = dict(BYTE_ALPHABET)
    backend = Backend(models.BPE(vocab, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)]
    )
    backend.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    tokenizer = Tokenizer(backend, special_tokens={"eos_token": "<|im_end|>"})
    return Renderer(tokenizer, ChatTemplate(template, {}) if template else None)


def engine_info(**changes: Any) -> EngineInfo:
    fields: dict[str, Any] = {
        "model": "tiny",
        "family": "llama",
        "dtype": "float32",
        "kv_dtype": "float32",
        "weight_format": "f32",
        "runner": "fake",
        "vocab_size": VOCAB_SIZE,
        "max_num_seqs": 8,
        "max_model_len": MAX_MODEL_LEN,
        "eos_token_ids": (EOS,),
        "layout": KVLayout(block_size=16, groups=(), pools=()),
        "generation_defaults": {},
        "table": "the memory plan",
        "structured_outputs": True,
    }
    return EngineInfo(**(fields | changes))


class FakeEngine:
    """Answers every request with `says`, `per_delta` tokens at a time, then EOS.

    `says` may be several texts, one for each sequence of a request in turn. `cached` is the prompt
    tokens found, and `miss` why not more; `drafts` how many a delta verified and accepted. What is
    told of a prompt comes first, `per_delta` tokens at a time. A beam search tells all at the end.
    """

    def __init__(self, says: str | list[str] = "Paris.", per_delta: int = 1, **info: Any) -> None:
        self.info = engine_info(**info)
        self.stats = EngineStats()
        self.dead: str | None = None
        self.says = says
        self.per_delta = per_delta
        self.cached = 3
        self.miss: str | None = None
        self.drafts = (0, 0)
        self.structured: Structured | None = None  # in place of what follows from the end
        self.stalls_after: int | None = None  # deltas, then nothing for ever
        self.fails_after: tuple[int, Exception] | None = None
        self.ends_with: Delta | None = None  # in place of the ordinary end
        self.requests: list[Request] = []
        self.aborted: list[str] = []
        self.cut: list[tuple[str, int]] = []  # sequences that were aborted alone
        self.closed = False
        self._unfinished: dict[str, set[int]] = {}
        self._ended = asyncio.Event()

    async def generate(self, request: Request) -> AsyncGenerator[Delta, None]:
        msgspec.msgpack.encode(request)  # it must fit through the wire
        self.requests.append(request)
        unfinished = self._unfinished[request.request_id] = set(range(request.params.n))
        try:
            for number, delta in enumerate(self._deltas(request)):
                if delta.index in unfinished:
                    await self._mishap(number)
                    if delta.finish_reason is not None:
                        unfinished.remove(delta.index)
                    yield delta
        finally:
            if unfinished:
                self.aborted.append(request.request_id)

    def abort(self, request_id: str, child: int) -> None:
        self.cut.append((request_id, child))
        self._unfinished[request_id].remove(child)

    def end_streams(self, why: str) -> None:
        self.dead = why
        self._ended.set()

    async def close(self) -> None:
        self.closed = True

    async def _mishap(self, number: int) -> None:
        await asyncio.sleep(0)
        if number == self.stalls_after:
            await self._ended.wait()
            raise EngineDeadError(self.dead)
        if self.fails_after is not None and number == self.fails_after[0]:
            raise self.fails_after[1]

    def _deltas(self, request: Request) -> Iterator[Delta]:
        """Of the prompt, then of all sequences in turn, step by step."""
        yield from self._told(request)
        answers = [self._answer(request, child) for child in range(request.params.n)]
        if request.params.use_beam_search:
            for answer in answers:
                yield _joined(answer)
        else:
            for step in zip_longest(*answers):
                yield from (delta for delta in step if delta is not None)

    def _answer(self, request: Request, child: int) -> list[Delta]:
        texts = [self.says] if isinstance(self.says, str) else self.says
        ids = [*spelled(texts[child % len(texts)]), EOS][: request.params.max_tokens]
        reason: FinishReason = "stop" if ids[-1:] == [EOS] else "length"
        deltas = []
        for begin in range(0, max(len(ids), 1), self.per_delta):
            some = ids[begin : begin + self.per_delta]
            last = begin + self.per_delta >= len(ids)
            if last and self.ends_with is not None:
                return [*deltas, msgspec.structs.replace(self.ends_with, index=child)]
            deltas.append(
                Delta(
                    request.request_id,
                    some,
                    index=child,
                    logprobs=_logprobs(some, request.params.logprobs, request.params),
                    finish_reason=reason if last else None,
                    num_cached_tokens=self.cached,
                    miss=self.miss,
                    num_drafts=self.drafts[0],
                    num_accepted=self.drafts[1],
                    structured=self._structured(request, reason) if last else None,
                )
            )
        return deltas

    def _structured(self, request: Request, reason: FinishReason) -> Structured | None:
        if request.params.structured_outputs is None:
            return None
        return self.structured or Structured(complete=reason == "stop")

    def _told(self, request: Request) -> Iterator[Delta]:
        k, first = request.params.prompt_logprobs, max(1, request.params.prompt_logprob_start)
        told = [] if k is None else _logprobs(request.prompt_token_ids[first:], k, None)
        for begin in range(0, len(told or ()), self.per_delta):
            some = told[begin : begin + self.per_delta]
            yield Delta(request.request_id, [], prompt_logprobs=some)


def spelled(text: str) -> list[int]:
    """Token ids: bytes and marks."""
    parts = re.split(f"({'|'.join(MARKS)})", text)
    ids = ([258 + MARKS.index(part)] if part in MARKS else part.encode() for part in parts)
    return [id for some in ids for id in some]


def _joined(deltas: list[Delta]) -> Delta:
    ids = [id for delta in deltas for id in delta.token_ids]
    return msgspec.structs.replace(deltas[-1], token_ids=ids, score=-1.0 - deltas[-1].index)


def _logprobs(
    ids: list[int], k: int | None, params: SamplingParams | None
) -> list[TokenLogprobs] | None:
    """`params`: of what is drawn; a prompt's logprobs name nothing and are raw."""
    if k is None:
        return None
    top = [(65, float("-inf")), (66, float("-inf"))]
    named = [(id, -7.0) for id in (params and params.logprob_token_ids) or ()]
    mass = -0.25 if params and params.logprobs_mode == "processed" else None
    return [TokenLogprobs(id, -0.5, 1, [(id, -0.5), *top][:k], named, mass) for id in ids]
