"""How one request wants its tokens drawn and when it wants to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from octavo.base import check
from octavo.base.errors import RequestError
from octavo.base.repetition import RepetitionDetection
from octavo.base.structured import StructuredOutputsParams, Thinking

MAX_N = 128
MAX_LENGTH_PENALTY = 100.0
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024  # characters
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGIT_BIAS = 1024  # entries
MAX_BAD_WORDS = 1024
MAX_LOGPROB_TOKEN_IDS = 128
MAX_LOGITS_PROCESSORS = 8  # named by one request
SEED_LIMIT = 2**63  # seeds are signed 64-bit on the wire of every client API

LogprobsMode = Literal["raw", "processed"]


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling controls of one request; names and meaning as in vLLM and the OpenAI API.

    Raises:
        RequestError: a value is outside its range; the message names field and limit.
    """

    n: int = 1  # answers; in a beam search, beams
    use_beam_search: bool = False  # the n likeliest answers; controls of chance have no effect
    length_penalty: float = 1.0  # a beam's score is its sum of logprobs / length ** this
    early_stopping: bool | Literal["never"] = False  # end when n beams have; "never": search on
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 and -1: off
    min_p: float = 0.0
    presence_penalty: float = 0.0  # counts output tokens only
    frequency_penalty: float = 0.0  # counts output tokens only
    repetition_penalty: float = 1.0  # counts prompt and output tokens
    seed: int | None = None  # None and -1: one is drawn at the door
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16  # None: to the end of the context; 0 with prompt_logprobs alone
    min_tokens: int = 0
    repetition_detection: RepetitionDetection | None = None
    logprobs: int | None = None  # k: the drawn token's and the k likeliest tokens'; -1: all tokens'
    logprobs_mode: LogprobsMode | None = None  # None: the engine's
    logprob_token_ids: Sequence[int] | None = None  # told besides, whether likely or not
    prompt_logprobs: int | None = None  # the same as logprobs, for tokens of the prompt
    prompt_logprob_start: int = 0  # the first position of them
    logit_bias: dict[int, float] | None = None  # token id -> added to its logit, -100..100
    allowed_token_ids: Sequence[int] | None = None  # no other is drawn
    bad_words: Sequence[str] | None = None  # never written
    bad_word_ids: Sequence[Sequence[int]] | None = None  # their tokens: octavo.text.bad_words
    logits_processors: Sequence[str] | None = None  # names of those that the engine has loaded
    extra_args: dict[str, Any] | None = None  # for them
    structured_outputs: StructuredOutputsParams | None = None  # the shape of the answer
    thinking: Thinking | None = None  # the reasoning that comes before it
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    stream_interval: int = 1  # tokens in a piece of a stream
    skip_reading_prefix_cache: bool = False  # compute the whole prompt; it is kept all the same

    def __post_init__(self) -> None:
        self._check_kinds()
        self._settle()
        self._check_numbers()
        self._check_logprobs()
        self._check_lists()
        self._check_structure()
        if self.use_beam_search:
            self._check_beams()

    def _settle(self) -> None:
        """One form for what may be said in several."""
        put = msgspec.structs.force_setattr
        put(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()))
        put(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        put(self, "top_k", max(self.top_k, 0))
        if self.seed == -1:
            put(self, "seed", None)
        if self.logprobs is None and self.logprob_token_ids is not None:
            put(self, "logprobs", 0)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        assert isinstance(self.stop, tuple)
        return self.stop

    @property
    def stop_ids(self) -> tuple[int, ...]:
        assert isinstance(self.stop_token_ids, tuple)
        return self.stop_token_ids

    def token_ids_named(self) -> Mapping[str, Sequence[int]]:
        """Every token id the client named, by field, for the check against the vocabulary."""
        return {
            "stop_token_ids": self.stop_ids,
            "logit_bias": tuple(self.logit_bias or ()),
            "allowed_token_ids": self.allowed_token_ids or (),
            "logprob_token_ids": self.logprob_token_ids or (),
            "bad_words": [token for word in self.bad_word_ids or () for token in word],
        }

    def _check_kinds(self) -> None:
        for field in ("use_beam_search", "spaces_between_special_tokens"):
            check.flag(field, getattr(self, field))
        check.flag("skip_reading_prefix_cache", self.skip_reading_prefix_cache)
        if not isinstance(self.early_stopping, bool):
            check.choice("early_stopping", self.early_stopping, ("true", "false", "never"))
        if self.logprobs_mode is not None:
            check.choice("logprobs_mode", self.logprobs_mode, get_args(LogprobsMode))
        for field in ("stop", "stop_token_ids"):
            value = getattr(self, field)
            if value is not None and not isinstance(value, str):
                check.items(field, value)
        check.integer("top_k", self.top_k, -1)
        for field in ("logit_bias", "extra_args"):
            value = getattr(self, field)
            if value is not None and not isinstance(value, Mapping):
                raise RequestError(f"{field} must be an object, got {value!r}", field)
        repetition = self.repetition_detection
        if repetition is not None and not isinstance(repetition, RepetitionDetection):
            raise RequestError(
                f"repetition_detection must be a RepetitionDetection, got {repetition!r}",
                "repetition_detection",
            )

    def _check_numbers(self) -> None:
        check.integer("n", self.n, 1, MAX_N)
        check.number("length_penalty", self.length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
        check.number("temperature", self.temperature, 0.0, 2.0)
        check.number("top_p", self.top_p, 0.0, 1.0, above_low=True)
        check.number("min_p", self.min_p, 0.0, 1.0)
        check.number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check.number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        check.number("repetition_penalty", self.repetition_penalty, 0.0, 100.0, above_low=True)
        if self.seed is not None:
            check.integer("seed", self.seed, -SEED_LIMIT, SEED_LIMIT - 1)
        if self.max_tokens is not None:
            check.integer("max_tokens", self.max_tokens, 1 if self.prompt_logprobs is None else 0)
        check.integer("min_tokens", self.min_tokens, 0, self.max_tokens)
        check.integer("stream_interval", self.stream_interval, 1)

    def _check_logprobs(self) -> None:
        """How many are allowed is the engine's to say."""
        for field in ("logprobs", "prompt_logprobs"):
            if getattr(self, field) is not None:
                check.integer(field, getattr(self, field), -1)
        check.integer("prompt_logprob_start", self.prompt_logprob_start, 0)
        if self.logprob_token_ids is not None:
            check.token_ids("logprob_token_ids", self.logprob_token_ids, MAX_LOGPROB_TOKEN_IDS)

    def _check_lists(self) -> None:
        check.texts("stop", self.stop_strings, MAX_STOP_STRINGS, MAX_STOP_LENGTH)
        check.token_ids("stop_token_ids", self.stop_ids, MAX_STOP_TOKEN_IDS)
        if self.stop_strings and not self.detokenize:
            raise RequestError("stop strings need detokenize=True", "stop")
        bias = self.logit_bias or {}
        check.token_ids("logit_bias", list(bias), MAX_LOGIT_BIAS)
        for value in bias.values():
            check.number("logit_bias", value, -100.0, 100.0)
        if self.allowed_token_ids is not None:
            check.token_ids("allowed_token_ids", self.allowed_token_ids)
            if not self.allowed_token_ids:
                raise RequestError("allowed_token_ids must not be empty", "allowed_token_ids")
        check.texts("bad_words", self.bad_words or (), MAX_BAD_WORDS, MAX_STOP_LENGTH)
        for word in self.bad_word_ids or ():
            check.token_ids("bad_word_ids", word)
            if not word:
                raise RequestError("bad_word_ids must each have a token", "bad_word_ids")
        names = self.logits_processors or ()
        check.texts("logits_processors", names, MAX_LOGITS_PROCESSORS, MAX_STOP_LENGTH)

    def _check_structure(self) -> None:
        """What is given as a dict becomes what it says. A structure says itself where it ends."""
        given = self.structured_outputs
        if isinstance(given, Mapping):
            given = msgspec.convert(given, StructuredOutputsParams)
            msgspec.structs.force_setattr(self, "structured_outputs", given)
        if given is not None and not isinstance(given, StructuredOutputsParams):
            raise RequestError(
                f"structured_outputs must be StructuredOutputsParams, got {given!r}",
                "structured_outputs",
            )
        for field in ("ignore_eos", "min_tokens") if given is not None else ():
            if getattr(self, field):
                raise RequestError(f"{field} and structured_outputs exclude each other", field)

    def _check_beams(self) -> None:
        """Beams are compared by the model's own logprobs, and end by tokens."""
        idle = {
            "presence_penalty": self.presence_penalty == 0,
            "frequency_penalty": self.frequency_penalty == 0,
            "repetition_penalty": self.repetition_penalty == 1,
            "logit_bias": not self.logit_bias,
            "allowed_token_ids": self.allowed_token_ids is None,
            "bad_words": not self.bad_words,
            "logits_processors": not self.logits_processors,
            "structured_outputs": self.structured_outputs is None,
            "min_tokens": self.min_tokens == 0,
            "stop": not self.stop_strings,
            "repetition_detection": self.repetition_detection is None,
            "logprob_token_ids": self.logprob_token_ids is None,
            "prompt_logprobs": self.prompt_logprobs is None,
            "logprobs=-1": self.logprobs != -1,
        }
        for field, is_idle in idle.items():
            if not is_idle:
                raise RequestError(
                    f"{field} is not supported with use_beam_search", field.partition("=")[0]
                )


@dataclass(frozen=True, kw_only=True)
class BeamSearchParams:
    """A beam search; names and meaning as in vLLM and Hugging Face Transformers."""

    beam_width: int
    max_tokens: int | None
    ignore_eos: bool = False
    length_penalty: float = 1.0  # score = sum of logprobs / length ** length_penalty
    early_stopping: bool | Literal["never"] = False  # end when beam_width have; "never": search on
    logprobs: int | None = None

    def sampling_params(self) -> SamplingParams:
        """Raises:
        RequestError: a value is outside its range.
        """
        return SamplingParams(
            n=self.beam_width,
            use_beam_search=True,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            logprobs=self.logprobs,
        )
