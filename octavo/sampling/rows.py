"""Rows to draw from, and what is drawn. numpy only, so that any sampler can be built on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from octavo.base.plan import TokenLogprobs
from octavo.base.sampling_params import SamplingParams
from octavo.sampling.controls import Controls, Shifts
from octavo.sampling.philox import uniforms

_NO_SHIFTS: Shifts = (np.empty(0, np.int64), np.empty(0))
_NO_IDS = np.empty(0, np.int32)


class SamplingRow(msgspec.Struct, frozen=True, eq=False):
    """One token to draw: that at `position` of its sequence. Or one that is `given`, of which the
    model's own logprob is told: no control acts on it, and only `logprobs` and `given` matter."""

    params: SamplingParams
    child: int  # index of the sequence in its request
    position: int
    prompt_len: int
    token_ids: NDArray[np.int64] | NDArray[np.int32]  # those before `position`; more are ignored
    stop_ids: tuple[int, ...]  # masked until `min_tokens` are generated
    logprobs: int | None = None  # likeliest tokens to tell of; None: nothing; -1: all tokens
    given: int | None = None
    controls: Controls | None = None  # of `params` and `stop_ids`, where they were made before
    # int32 words, a bit for each token that may be drawn, lowest first; none beyond them may.
    mask: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if self.controls is None:
            controls = Controls(self.params, self.stop_ids)
            msgspec.structs.force_setattr(self, "controls", controls)

    @property
    def ready(self) -> Controls:
        assert self.controls is not None
        return self.controls

    @property
    def known(self) -> NDArray[np.int64] | NDArray[np.int32]:
        return self.token_ids[: self.position]

    @property
    def output(self) -> NDArray[np.int64] | NDArray[np.int32]:
        return self.token_ids[self.prompt_len : self.position]

    @property
    def shifts(self) -> Shifts:
        """Tokens, and what is added to their logits."""
        return _NO_SHIFTS if self.given is not None else self.ready.shifts(self.output)

    @property
    def allowed(self) -> NDArray[np.int32]:
        """The only tokens that may be drawn; where empty, all may."""
        return _NO_IDS if self.given is not None else self.ready.allowed

    @property
    def named(self) -> NDArray[np.int32]:
        """Tokens to tell the logprobs of besides the likeliest."""
        return _NO_IDS if self.given is not None or self.logprobs is None else self.ready.named

    @property
    def penalised(self) -> bool:
        return self.given is None and self.ready.penalised

    @property
    def processed(self) -> bool:
        """Logprobs are of what the token is drawn from."""
        return self.given is None and self.ready.processed

    @property
    def random(self) -> bool:
        return self.given is None and not self.ready.greedy

    def told(self, vocab: int) -> int:
        """How many of the likeliest tokens to tell of."""
        wanted = self.logprobs or 0
        return vocab if wanted < 0 else min(wanted, vocab)


class Drawn(msgspec.Struct, frozen=True):
    """What a row drew. With `error`, its logits were unusable and `token_id` is -1."""

    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None


def fault(peak: float) -> str | None:
    """What is wrong with a row whose first largest adjusted logit, NaN before any, is `peak`."""
    if math.isfinite(peak):
        return None
    if peak == -math.inf:
        return "no token can be drawn: every logit is -inf"
    return f"the model's logits contain {peak}"


def noise(rows: Sequence[SamplingRow]) -> NDArray[np.float64]:
    """[rows]: the uniform that draws each row's token."""
    if not rows:  # all are greedy; a hundred microseconds less
        return np.empty(0)
    seeds = [row.params.seed for row in rows if row.params.seed is not None]
    assert len(seeds) == len(rows), "a missing seed is drawn before a request gets here"
    return uniforms(seeds, [row.child for row in rows], [row.position for row in rows])
