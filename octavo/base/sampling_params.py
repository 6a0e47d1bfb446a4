"""How one request wants its tokens drawn and when it wants to stop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from octavo.base.errors import RequestError

MAX_N = 128
MAX_LENGTH_PENALTY = 100.0
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024  # characters
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGIT_BIAS = 1024  # entries
SEED_LIMIT = 2**63  # seeds are signed 64-bit on the wire of every client API


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
    seed: int | None = None  # None: one is drawn at the door
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16  # None: to the end of the context
    min_tokens: int = 0
    logprobs: int | None = None  # k: the drawn token's and the k likeliest tokens' logprobs
    logit_bias: dict[int, float] | None = None  # token id -> added to its logit, -100..100
    detokenize: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        self._check_types()
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        put(self, "stop", stop)
        put(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        _integer("top_k", self.top_k, -1)
        put(self, "top_k", max(self.top_k, 0))
        self._check_numbers()
        self._check_stops(stop)
        self._check_bias()
        if self.use_beam_search:
            self._check_beams(stop)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        assert isinstance(self.stop, tuple)
        return self.stop

    @property
    def stop_ids(self) -> tuple[int, ...]:
        assert isinstance(self.stop_token_ids, tuple)
        return self.stop_token_ids

    def token_ids_named(self) -> Mapping[str, tuple[int, ...]]:
        """Every token id the client named, by field, for the check against the vocabulary."""
        return {
            "stop_token_ids": self.stop_ids,
            "logit_bias": tuple(self.logit_bias or ()),
        }

    def _check_types(self) -> None:
        if not isinstance(self.use_beam_search, bool):
            raise RequestError(
                f"use_beam_search must be true or false, got {self.use_beam_search!r}",
                "use_beam_search",
            )
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise RequestError(
                f"early_stopping must be true, false or 'never', got {self.early_stopping!r}",
                "early_stopping",
            )
        for field in ("stop", "stop_token_ids"):
            value = getattr(self, field)
            if value is not None and not isinstance(value, Sequence):
                raise RequestError(f"{field} must be a list, got {value!r}", field)
        if self.logit_bias is not None and not isinstance(self.logit_bias, Mapping):
            raise RequestError(
                f"logit_bias must map token ids to numbers, got {self.logit_bias!r}", "logit_bias"
            )

    def _check_numbers(self) -> None:
        _integer("n", self.n, 1, MAX_N)
        _number("length_penalty", self.length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
        _number("temperature", self.temperature, 0.0, 2.0)
        _number("top_p", self.top_p, 0.0, 1.0, above_low=True)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, 0.0, 100.0, above_low=True)
        if self.seed is not None:
            _integer("seed", self.seed, -SEED_LIMIT, SEED_LIMIT - 1)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1)
        _integer("min_tokens", self.min_tokens, 0, self.max_tokens)
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)

    def _check_stops(self, stop: tuple[str, ...]) -> None:
        if len(stop) > MAX_STOP_STRINGS:
            raise RequestError(f"stop has {len(stop)} strings; at most {MAX_STOP_STRINGS}", "stop")
        for text in stop:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_LENGTH:
                raise RequestError(
                    f"stop strings must have 1 to {MAX_STOP_LENGTH} characters", "stop"
                )
        if len(self.stop_ids) > MAX_STOP_TOKEN_IDS:
            raise RequestError(
                f"stop_token_ids has {len(self.stop_ids)} ids; at most {MAX_STOP_TOKEN_IDS}",
                "stop_token_ids",
            )
        for token in self.stop_ids:
            _integer("stop_token_ids", token, 0)
        if stop and not self.detokenize:
            raise RequestError("stop strings need detokenize=True", "stop")

    def _check_beams(self, stop: tuple[str, ...]) -> None:
        """Beams are compared by the model's own logprobs, and end by tokens."""
        idle = {
            "presence_penalty": self.presence_penalty == 0,
            "frequency_penalty": self.frequency_penalty == 0,
            "repetition_penalty": self.repetition_penalty == 1,
            "logit_bias": not self.logit_bias,
            "min_tokens": self.min_tokens == 0,
            "stop": not stop,
        }
        for field, is_idle in idle.items():
            if not is_idle:
                raise RequestError(f"{field} is not supported with use_beam_search", field)

    def _check_bias(self) -> None:
        bias = self.logit_bias or {}
        if len(bias) > MAX_LOGIT_BIAS:
            raise RequestError(
                f"logit_bias has {len(bias)} entries; at most {MAX_LOGIT_BIAS}", "logit_bias"
            )
        for token, value in bias.items():
            _integer("logit_bias", token, 0)
            _number("logit_bias", value, -100.0, 100.0)


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


def _integer(field: str, value: object, low: int, high: int | None = None) -> None:
    bound = f"at least {low}" if high is None else f"between {low} and {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{field} must be an integer {bound}, got {value!r}", field)
    if value < low or (high is not None and value > high):
        raise RequestError(f"{field} must be {bound}, got {value}", field)


def _number(field: str, value: object, low: float, high: float, above_low: bool = False) -> None:
    bound = f"above {low:g} and at most {high:g}" if above_low else f"between {low:g} and {high:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise RequestError(f"{field} must be a number {bound}, got {value!r}", field)
    if value < low or value > high or (above_low and value == low):
        raise RequestError(f"{field} must be {bound}, got {value!r}", field)
