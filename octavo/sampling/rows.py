"""Rows to draw from, what is drawn, and what each row's controls ask for. numpy only, so that any
sampler can be built on it.

Each control of all rows becomes (row, tokens, values) triples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from octavo.base.plan import TokenLogprobs
from octavo.base.sampling_params import SamplingParams
from octavo.sampling.philox import uniforms

GREEDY_BELOW = 1e-5  # temperature

Triples = tuple[int, ArrayLike, ArrayLike]  # one row, its tokens, a value for each or for all


class SamplingRow(msgspec.Struct, frozen=True, eq=False):
    """One token to draw: that at `position` of its sequence."""

    params: SamplingParams
    child: int  # index of the sequence in its request
    position: int
    prompt_len: int
    token_ids: NDArray[np.int64] | NDArray[np.int32]  # those before `position`; more are ignored
    stop_ids: tuple[int, ...]  # masked until `min_tokens` are generated
    logprobs: int | None = None  # likeliest tokens to tell of; None: nothing

    @property
    def known(self) -> NDArray[np.int64] | NDArray[np.int32]:
        return self.token_ids[: self.position]

    @property
    def output(self) -> NDArray[np.int64] | NDArray[np.int32]:
        return self.token_ids[self.prompt_len : self.position]

    @property
    def masked(self) -> tuple[int, ...]:
        short = self.position - self.prompt_len < self.params.min_tokens
        return self.stop_ids if short else ()

    @property
    def greedy(self) -> bool:
        return self.params.temperature < GREEDY_BELOW


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


def biases(rows: Sequence[SamplingRow]) -> list[Triples]:
    """What `logit_bias` adds."""
    wanted = ((i, row.params.logit_bias) for i, row in enumerate(rows))
    return [(i, list(bias), list(bias.values())) for i, bias in wanted if bias]


def masks(rows: Sequence[SamplingRow]) -> list[Triples]:
    """-inf to add, not to set, so that a NaN below stays visible."""
    return [(i, row.masked, -np.inf) for i, row in enumerate(rows) if row.masked]


def repetitions(rows: Sequence[SamplingRow]) -> list[Triples]:
    """Tokens of prompt and output, each once, with what their logits are divided by where
    positive and multiplied by where not."""
    penalties = ((i, row, row.params.repetition_penalty) for i, row in enumerate(rows))
    return [(i, np.unique(row.known), penalty) for i, row, penalty in penalties if penalty != 1]


def usage(rows: Sequence[SamplingRow]) -> list[Triples]:
    """Tokens of the output alone, each once, with their (negative) penalties to add."""
    found: list[Triples] = []
    for i, row in enumerate(rows):
        frequency, presence = row.params.frequency_penalty, row.params.presence_penalty
        if frequency or presence:
            tokens, times = np.unique(row.output, return_counts=True)
            found.append((i, tokens, -(frequency * times + presence)))
    return found
