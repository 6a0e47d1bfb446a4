"""The offline face: `LLM`. Prompts in, whole answers out, in the same order."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from octavo.base.errors import RequestError
from octavo.base.output import CompletionOutput, EngineStats, Logprob, RequestOutput
from octavo.base.plan import TokenLogprobs
from octavo.base.progress import progress
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import EngineSettings
from octavo.engine.build import build_engine
from octavo.engine.door import Door
from octavo.engine.info import EngineInfo
from octavo.engine.local import LocalEngine
from octavo.files.locate import locate
from octavo.files.model_files import ModelFiles
from octavo.text.assembler import Assembler, TextDelta
from octavo.text.renderer import Renderer, load_renderer
from octavo.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | dict[str, Any]
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
        files = locate(settings.model.model)
        with ThreadPoolExecutor(1) as beside:  # both take long, and neither needs the other
            text = beside.submit(_load_text, settings, files)
            self._local = LocalEngine(build_engine(settings, files))
            self._text = text.result()
        self._door = Door(self.info, settings.seed)

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
        listed = _listed(prompts)
        params = _spread(sampling_params or self.default_sampling_params(), len(listed))
        ranks = priority or [0] * len(listed)
        if len(ranks) != len(listed):
            raise RequestError(f"{len(ranks)} priorities for {len(listed)} prompts", "priority")
        answers = [self._answer(*job) for job in zip(listed, params, ranks, strict=True)]
        waiting = {a.request.request_id: a for a in answers if a.request is not None}
        pieces = closing(self._run([a.request for a in answers if a.request is not None]))
        bar = progress(len(answers), "prompts", shown=use_tqdm)
        with pieces as run, bar:
            bar.update(len(answers) - len(waiting))
            for request_id, delta in run:
                waiting[request_id].feed(delta)
                if delta.finish_reason is not None:
                    bar.update()
        return [answer.output for answer in answers]

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

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Generator[TextDelta, None, None]:
        """Continue one prompt, piece by piece. Leaving early aborts it.

        Raises:
            RequestError: the prompt is refused.
        """
        request, _ = self._request(prompt, sampling_params or self.default_sampling_params(), 0)
        with closing(self._run([request])) as pieces:
            for _, piece in pieces:
                yield piece

    def _answer(self, prompt: Prompt, params: SamplingParams, priority: int) -> _Answer:
        try:
            request, text = self._request(prompt, params, priority)
        except RequestError as error:
            text = prompt if isinstance(prompt, str) else None
            return _Answer(None, RequestOutput(request_id="", prompt=text, error=str(error)))
        output = RequestOutput(
            request_id=request.request_id,
            prompt=text,
            prompt_token_ids=request.prompt_token_ids,
        )
        return _Answer(request, output, self._text.tokenizer if self._text else None)

    def _request(
        self, prompt: Prompt, params: SamplingParams, priority: int
    ) -> tuple[Request, str | None]:
        """The request for a prompt, and its text where that is known."""
        given = _as_dict(prompt)
        text = given.get("prompt")
        ids = self._token_ids(given)
        if self._text is None and params.stop_strings:
            raise RequestError("stop strings need a tokenizer", "stop")
        salt = given.get("cache_salt") or ""
        return self._door.request(ids, params, priority=priority, cache_salt=salt), text

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
        texts = {r.request_id: Assembler(r, tokenizer) for r in requests}
        with closing(self._local.generate(requests)) as deltas:
            for delta in deltas:
                piece = texts[delta.request_id].feed(delta)
                if piece.cut:
                    self._local.abort_child(delta.request_id, delta.index)
                yield delta.request_id, piece


def _load_text(settings: EngineSettings, files: ModelFiles) -> Renderer | None:
    if settings.model.skip_tokenizer_init:
        return None
    return load_renderer(files, settings.model.tokenizer, settings.model.chat_template)


class _Answer:
    """One prompt's output while it grows."""

    def __init__(
        self, request: Request | None, output: RequestOutput, tokenizer: Tokenizer | None = None
    ) -> None:
        self.request = request
        self.output = output
        self._tokenizer = tokenizer
        self._completion = CompletionOutput(token_ids=[])
        if request is None:
            self._completion.finish_reason = "error"
        output.outputs = [self._completion]

    def feed(self, delta: TextDelta) -> None:
        mine = self._completion
        mine.text += delta.text
        mine.token_ids += delta.token_ids
        if delta.logprobs:
            mine.logprobs = (mine.logprobs or []) + [self._named(p) for p in delta.logprobs]
            mine.cumulative_logprob = (mine.cumulative_logprob or 0.0) + sum(
                position.logprob for position in delta.logprobs
            )
        mine.finish_reason, mine.stop_reason = delta.finish_reason, delta.stop_reason
        self.output.error = delta.error
        self.output.num_cached_tokens = max(self.output.num_cached_tokens, delta.num_cached_tokens)

    def _named(self, position: TokenLogprobs) -> dict[int, Logprob]:
        """The drawn token first, then the likeliest ones."""
        drawn = (position.token_id, position.logprob, position.rank)
        top = [(token, logprob, rank) for rank, (token, logprob) in enumerate(position.top, 1)]
        name = self._tokenizer.token if self._tokenizer else lambda token: None
        found: dict[int, Logprob] = {}
        for token, logprob, rank in (drawn, *top):
            found.setdefault(token, Logprob(logprob, rank, name(token)))
        return found


def _as_dict(prompt: Prompt) -> dict[str, Any]:
    if isinstance(prompt, dict):
        return prompt
    return {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}


def _listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several -> several. A list of ints is one prompt."""
    if not isinstance(prompts, Sequence | dict) or isinstance(prompts, bytes):
        raise RequestError(f"prompts must not be of type {type(prompts).__name__}", "prompts")
    single = isinstance(prompts, str | dict) or bool(prompts and isinstance(prompts[0], int))
    return [prompts] if single else list(prompts)  # type: ignore[list-item,arg-type]


def _spread(
    params: SamplingParams | Sequence[SamplingParams], count: int
) -> Sequence[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if isinstance(params, dict) or not all(isinstance(p, SamplingParams) for p in params):
        raise RequestError(
            "sampling_params must be SamplingParams, one or a list", "sampling_params"
        )
    if len(params) != count:
        raise RequestError(f"{len(params)} sampling_params for {count} prompts", "sampling_params")
    return params
