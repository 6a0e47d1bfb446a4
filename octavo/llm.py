"""The offline face: `LLM`. Prompts in, whole answers out, in the same order."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from octavo.answer import Answer, Prompt, as_dict, listed, spread
from octavo.base.errors import RequestError
from octavo.base.output import EngineStats, RequestOutput
from octavo.base.progress import progress
from octavo.base.request import Request
from octavo.base.sampling_params import BeamSearchParams, SamplingParams
from octavo.base.settings import EngineSettings
from octavo.engine.build import build_engine
from octavo.engine.door import Door
from octavo.engine.engine import InFlight
from octavo.engine.history import History
from octavo.engine.info import EngineInfo
from octavo.engine.local import LocalEngine
from octavo.engine.updates import Source
from octavo.files.locate import locate
from octavo.files.model_files import ModelFiles
from octavo.text.assembler import Assembler, Interval, TextDelta
from octavo.text.bad_words import spelled
from octavo.text.renderer import Renderer, load_renderer

Messages = Sequence[dict[str, Any]]


class LLM:
    """A model in this process.

    Args:
        model: short name, folder in Hugging Face layout, .gguf file, or hub id.
        options: any setting of `EngineSettings`, flat: `dtype`, `kv_memory`, `max_model_len`,
            `max_num_batched_tokens`, `max_num_seqs`, `prefix_caching`, `seed`,
            `skip_tokenizer_init`, `load_format` ...

    Raises:
        ConfigError: a setting is unknown or impossible, or the model cannot be had.
    """

    def __init__(self, model: str = "smollm2", **options: Any) -> None:
        settings = EngineSettings.flat(model=model, **options)
        files = locate(settings.model.model, code=settings.model.trust_remote_code)
        with ThreadPoolExecutor(1) as beside:  # both take long, and neither needs the other
            text = beside.submit(_load_text, settings, files)
            self._local = LocalEngine(build_engine(settings, files))
            self._text = text.result()
        self._door = Door(self.info, settings.seed)
        self._history = History()

    @property
    def epoch(self) -> str:
        """Says which weights are in use: a digest of their content."""
        return self._local.engine.epoch

    def update_weights(self, source: Source, in_flight: InFlight = "finish") -> str:
        """Put other weights in the place of these, some or all, without a restart; the new epoch.

        No KV of another epoch is ever reused; where the weights of an earlier one come back, what
        is left of its KV is.

        Args:
            source: a safetensors file, or a dict of names to numpy arrays or torch tensors.
            in_flight: what becomes of requests that have begun: "finish" with the old weights
                while newcomers wait, "recompute" with the new ones from their tokens so far, or
                "abort".

        Raises:
            ModelError: a tensor cannot be read, is unknown, or is of another shape. Nothing has
                changed then.
        """
        self._local.call(lambda engine: engine.update_weights(source, in_flight))
        return self.epoch

    def sleep(self, in_flight: InFlight = "finish") -> None:
        """Free the memory of weights and KV until `wake_up`. `in_flight` as in `update_weights`."""
        self._local.call(lambda engine: engine.sleep(in_flight))

    def wake_up(self) -> None:
        """Load the weights again that were in use."""
        self._local.call(lambda engine: engine.wake_up())

    def reset_prefix_cache(self) -> bool:
        """Forget all cached KV; False, with nothing changed, while a request holds some."""
        return self._local.call(lambda engine: engine.reset_prefix_cache())

    def close(self) -> None:
        """End what works in the background. With `kv_swap_dir`, what the cache holds is kept for
        the next start."""
        self._local.call(lambda engine: engine.close())

    @property
    def info(self) -> EngineInfo:
        return self._local.engine.info

    @property
    def stats(self) -> EngineStats:
        return self._local.engine.stats

    @property
    def text(self) -> Renderer:
        """Tokenizer and chat template.

        Raises:
            RequestError: the model was loaded with skip_tokenizer_init.
        """
        if self._text is None:
            raise RequestError("this needs a tokenizer; skip_tokenizer_init is set", "prompt")
        return self._text

    def default_sampling_params(self) -> SamplingParams:
        """The model's own defaults, from its generation config."""
        return SamplingParams(**self.info.generation_defaults)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Continue every prompt; results in input order.

        A prompt is a text, token ids, `{"prompt": text}`, `{"prompt_token_ids": ids}` or
        `{"messages": conversation}`, the dicts with `"cache_salt"` if wanted. One that is refused
        gives an output with `error` set and costs the others nothing.

        Raises:
            RequestError: the numbers of prompts, params and priorities differ.
        """
        asked = listed(prompts)
        params = spread(sampling_params or self.default_sampling_params(), len(asked))
        ranks = priority or [0] * len(asked)
        if len(ranks) != len(asked):
            raise RequestError(f"{len(ranks)} priorities for {len(asked)} prompts", "priority")
        return self._finish(
            [self._answer(*job) for job in zip(asked, params, ranks, strict=True)], use_tqdm
        )

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        **template_options: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several; `template_options` as in the chat template's
        `render` (`add_generation_prompt`, `continue_final_message`, `tools` ...)."""
        several = [messages] if messages and isinstance(messages[0], dict) else messages
        prompts = [{"messages": talk, "template_options": template_options} for talk in several]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """The likeliest continuations of every prompt, the best first; results in input order.

        `cumulative_logprob` of each is its sum of logprobs. Beams share the KV of what they have in
        common.
        """
        return self.generate(prompts, params.sampling_params(), use_tqdm=use_tqdm)

    def fork(
        self,
        source: RequestOutput | str,
        text: str | Sequence[int] = "",
        sampling_params: SamplingParams | None = None,
        *,
        index: int = 0,
        at_token: int | None = None,
        use_tqdm: bool = False,
    ) -> RequestOutput:
        """Go on from any token of a request that runs, or of the last 256 that have finished; what
        it has computed is not computed again.

        Args:
            source: the request's output or id.
            text: what follows the kept tokens, as text or token ids.
            sampling_params: those of the request, with another seed and nothing told of the
                prompt, unless given.
            index: of the answer, where the request has several.
            at_token: how many tokens of prompt and answer are kept; None: all.

        Raises:
            NotFoundError: the request is none of those.
            RequestError: `index`, `at_token` or the new prompt is impossible.
        """
        request_id = source if isinstance(source, str) else source.request_id
        record = self._history.get("", request_id)
        more = self.text.tokenizer.encode(text, False) if isinstance(text, str) and text else text
        request = self._door.request(
            [*record.tokens(index, at_token), *(more or ())],
            self._spelled(sampling_params or record.params_of_fork()),
            cache_salt=record.request.cache_salt,
            fork_of=request_id,
        )
        return self._finish([self._to_answer(request, None)], use_tqdm)[0]

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Generator[TextDelta, None, None]:
        """Continue one prompt, piece by piece. Leaving early aborts it.

        A piece holds at least `stream_interval` tokens, but the last.

        Raises:
            RequestError: the prompt is refused.
        """
        request, _ = self._request(prompt, sampling_params or self.default_sampling_params(), 0)
        interval = Interval(request)
        with closing(self._run([request])) as pieces:
            for _, piece in pieces:
                if (joined := interval.take(piece)) is not None:
                    yield joined

    def _answer(self, prompt: Prompt, params: SamplingParams, priority: int) -> Answer:
        try:
            request, text = self._request(prompt, params, priority)
        except RequestError as error:
            text = prompt if isinstance(prompt, str) else None
            return Answer(None, RequestOutput(request_id="", prompt=text, error=str(error)))
        return self._to_answer(request, text)

    def _to_answer(self, request: Request, text: str | None) -> Answer:
        output = RequestOutput(
            request_id=request.request_id,
            prompt=text,
            prompt_token_ids=request.prompt_token_ids,
            seed=request.params.seed,
        )
        return Answer(request, output, self._text.tokenizer if self._text else None)

    def _finish(self, answers: list[Answer], use_tqdm: bool) -> list[RequestOutput]:
        waiting = {a.request.request_id: a for a in answers if a.request is not None}
        pieces = closing(self._run([a.request for a in answers if a.request is not None]))
        bar = progress(len(answers), "prompts", shown=use_tqdm)
        with pieces as run, bar:
            bar.update(len(answers) - len(waiting))
            for request_id, delta in run:
                answer = waiting[request_id]
                answer.feed(delta)
                if delta.finish_reason is not None and answer.is_whole:
                    bar.update()
        return [answer.output for answer in answers]

    def _request(
        self, prompt: Prompt, params: SamplingParams, priority: int
    ) -> tuple[Request, str | None]:
        """The request for a prompt, and its text where that is known."""
        given = as_dict(prompt)
        text = given.get("prompt")
        ids = self._token_ids(given)
        if self._text is None and params.stop_strings:
            raise RequestError("stop strings need a tokenizer", "stop")
        salt = given.get("cache_salt") or ""
        params = self._spelled(params)
        return self._door.request(ids, params, priority=priority, cache_salt=salt), text

    def _spelled(self, params: SamplingParams) -> SamplingParams:
        """With the tokens of its bad words, where there is a tokenizer."""
        return spelled(params, self._text.tokenizer) if self._text else params

    def _token_ids(self, given: dict[str, Any]) -> list[int]:
        kinds = [k for k in ("prompt", "prompt_token_ids", "messages") if given.get(k) is not None]
        if len(kinds) != 1:
            raise RequestError(
                "a prompt has exactly one of 'prompt', 'prompt_token_ids' and 'messages'", "prompt"
            )
        [kind], value = kinds, given[kinds[0]]
        if kind == "prompt" and isinstance(value, str):
            return self.text.tokenizer.encode(value)
        if kind == "prompt" or isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise RequestError(f"{kind} must not be of type {type(value).__name__}", kind)
        if kind == "messages":
            return self.text.encode_chat(value, **given.get("template_options", {}))
        return list(value)

    def _run(self, requests: Sequence[Request]) -> Generator[tuple[str, TextDelta], None, None]:
        """Pieces of text as they come; a request that a stop string ends is aborted."""
        tokenizer = self._text.tokenizer if self._text else None
        texts = {
            (r.request_id, i): Assembler(r, tokenizer) for r in requests for i in range(r.params.n)
        }
        records = {r.request_id: self._history.begin(r) for r in requests}
        try:
            with closing(self._local.generate(requests)) as deltas:
                for delta in deltas:
                    piece = texts[delta.request_id, delta.index].feed(delta)
                    records[delta.request_id].add(piece)
                    if piece.cut:
                        self._local.abort_child(delta.request_id, delta.index)
                    yield delta.request_id, piece
        finally:
            for request_id in records:
                self._history.end(request_id)


def _load_text(settings: EngineSettings, files: ModelFiles) -> Renderer | None:
    if settings.model.skip_tokenizer_init:
        return None
    return load_renderer(files, settings.model.tokenizer, settings.model.chat_template)
