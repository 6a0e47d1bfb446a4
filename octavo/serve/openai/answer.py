"""What chat and text completions share: reading the common fields, counting, naming."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET, UnsetType

from octavo.base.errors import RequestError
from octavo.base.output import Structured
from octavo.base.plan import TokenLogprobs
from octavo.base.repetition import RepetitionDetection
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.serve.generation import Generation
from octavo.serve.models import ServedModel
from octavo.serve.openai.schemas import CompletionBody, ForkBody, SamplingBody
from octavo.serve.openai.wire import CachedTokens, CacheReport, CompletionTokens, Usage
from octavo.text.assembler import TextDelta

_SAMPLING = (
    "n",
    "use_beam_search",
    "length_penalty",
    "early_stopping",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "logits_processors",
    "logprob_token_ids",
    "logprobs_mode",
    "prompt_logprobs",
    "prompt_logprob_start",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "skip_reading_prefix_cache",
    "stream_interval",
)
_REPETITION = set(RepetitionDetection.__struct_fields__)


def sampling_fields(body: SamplingBody) -> dict[str, Any]:
    """The fields that are `SamplingParams`' own, where the client set them.

    Raises:
        RequestError: best_of asks for answers that would not be shown, prompt_logprobs for what a
            stream has no place for, or a pattern of repetition has no size.
    """
    n = body.n or 1
    if body.best_of not in (None, n):
        raise RequestError(
            f"best_of must be equal to n, which is {n}; got {body.best_of}", "best_of"
        )
    if body.stream and body.prompt_logprobs is not None:
        raise RequestError("prompt_logprobs are not told in a stream", "prompt_logprobs")
    values = {name: getattr(body, name) for name in _SAMPLING}
    if body.repetition_detection is not None:
        fields = body.repetition_detection.model_dump(include=_REPETITION)
        values["repetition_detection"] = RepetitionDetection(**fields)
    if body.extra_args is not None or body.vllm_xargs is not None:
        values["extra_args"] = (body.vllm_xargs or {}) | (body.extra_args or {})
    return {name: value for name, value in values.items() if value is not None}


def text_fields(body: CompletionBody | ForkBody) -> dict[str, Any]:
    """The same for a text completion, whose logprobs are a number."""
    logprobs = {} if body.logprobs is None else {"logprobs": body.logprobs}
    return sampling_fields(body) | logprobs


def labels(body: SamplingBody, request_id: str, owner: str) -> dict[str, Any]:
    """Of one request to the engine: who it is, whose, and whom it shares with."""
    return {
        "request_id": request_id,
        "priority": body.priority,
        "cache_salt": body.cache_salt or "",
        "owner": owner,
    }


@dataclass(frozen=True)
class Extras:
    """What the client wants to see besides the text."""

    usage: bool  # a last chunk with the usage; the others say null
    running_usage: bool  # the usage so far, in every chunk
    token_ids: bool
    cache: bool  # what the cache held, in the usage

    @classmethod
    def of(cls, body: SamplingBody) -> Extras:
        """Raises:
        RequestError: stream_options without stream, or cache_explain where no usage is sent.
        """
        options = body.stream_options
        if options is not None and not body.stream:
            raise RequestError("stream_options needs stream to be true", "stream_options")
        usage = options is not None and options.include_usage
        if body.cache_explain and body.stream and not usage:
            raise RequestError(
                "cache_explain is part of the usage: a stream needs stream_options.include_usage",
                "cache_explain",
            )
        return cls(
            usage=usage,
            running_usage=options is not None and options.continuous_usage_stats,
            token_ids=bool(body.return_token_ids),
            cache=bool(body.cache_explain),
        )

    def ids(self, token_ids: list[int]) -> list[int] | UnsetType:
        return token_ids if self.token_ids else UNSET


class Heading:
    """The fields that open every chunk of one answer."""

    def __init__(self, prefix: str, model: ServedModel) -> None:
        self.id = f"{prefix}-{uuid.uuid4().hex}"
        self.fields: dict[str, Any] = {
            "id": self.id,
            "created": int(time.time()),
            "model": model.name,
            "system_fingerprint": model.fingerprint,
        }
        self.http = {"x-request-id": self.id}


def told_once(params: SamplingParams) -> dict[str, Any]:
    """Fields of an answer, in a stream of its first chunk: what it takes to have it again, and what
    its logprobs mean. Beams are told of raw, whatever was asked."""
    if params.logprobs is None:
        return {"seed": params.seed}
    mode = "raw" if params.use_beam_search else params.logprobs_mode
    return {"seed": params.seed, "logprobs_mode": mode}


def told_of_shape(params: SamplingParams, end: TextDelta | Whole) -> Structured | UnsetType:
    """`end`: the last piece of an answer, or all of it. One that a stop string cut is not whole."""
    if params.structured_outputs is None:
        return UNSET
    return end.structured or Structured(complete=False)


@dataclass
class Tally:
    """Tokens of one answer: all its prompts, each once, and all its choices."""

    prompt: int
    completion: int = 0
    reasoning: int = 0  # of these
    drafts: int = 0
    accepted: int = 0  # of the drafts
    cached: dict[int, int] = field(default_factory=dict)  # by prompt

    def add(self, prompt: int, piece: TextDelta) -> None:
        self.completion += len(piece.token_ids)
        self.drafts += piece.num_drafts
        self.accepted += piece.num_accepted
        self.cached[prompt] = max(piece.num_cached_tokens, self.cached.get(prompt, 0))

    def usage(self, report: CacheReport | UnsetType = UNSET) -> Usage:
        total = self.prompt + self.completion
        cached = CachedTokens(sum(self.cached.values()), report)
        made = CompletionTokens(self.reasoning, self.accepted, self.drafts - self.accepted)
        return Usage(self.prompt, self.completion, total, cached, made)

    def for_chunk(self, extras: Extras) -> Usage | UnsetType | None:
        if extras.running_usage:
            return self.usage()
        return None if extras.usage else UNSET


async def last_usage(
    generation: Generation, extras: Extras, tally: Tally, answer_id: str, request: Request
) -> Usage:
    """Of a finished answer, with what the cache held of its prompt where the client wants that."""
    if not extras.cache:
        return tally.usage()
    record = generation.history.get(request.owner, request.request_id)
    return tally.usage(await generation.explain(record, answer_id))


@dataclass
class Whole:
    """One finished choice, gathered from its pieces."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str = ""
    stop_reason: int | str | None = None
    structured: Structured | None = None

    def add(self, piece: TextDelta) -> None:
        self.texts.append(piece.text)
        self.token_ids += piece.token_ids
        self.logprobs += piece.logprobs or ()
        if piece.finish_reason:
            self.finish_reason = piece.finish_reason
            self.stop_reason = piece.stop_reason
            self.structured = piece.structured

    @property
    def text(self) -> str:
        return "".join(self.texts)
