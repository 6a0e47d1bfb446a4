"""Bias, masks and penalties: what a request does to its logits before anything is drawn.

Each control of all rows becomes flat (row, token, value) triples and acts in one operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from octavo.base.sampling_params import SamplingParams

Triples = tuple[int, ArrayLike, ArrayLike]  # one row, its tokens, a value for each or for all


@dataclass(frozen=True, slots=True, eq=False)
class SamplingRow:
    """One token to draw: that at `position` of its sequence."""

    params: SamplingParams
    child: int  # index of the sequence in its request
    position: int
    prompt_len: int
    token_ids: NDArray[np.int64] | NDArray[np.int32]  # those before `position`; more are ignored
    stop_ids: tuple[int, ...]  # masked until `min_tokens` are generated

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


def adjusted(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Logits, float32 [rows, vocab], after bias, min_tokens masks and penalties.

    Returns `logits` itself where no row uses any of them; never changes it.
    """
    shifts = _biases(rows) + _masks(rows)
    repetitions, usage = _repetitions(rows), _usage(rows)
    if not (shifts or repetitions or usage):
        return logits
    logits = logits.clone()
    if shifts:
        _add(logits, shifts)
    if repetitions:
        place, factor = _flat(logits, repetitions)
        value = logits[place]
        logits[place] = torch.where(value > 0, value / factor, value * factor)
    if usage:
        _add(logits, usage)
    return logits


def _biases(rows: Sequence[SamplingRow]) -> list[Triples]:
    biases = ((i, row.params.logit_bias) for i, row in enumerate(rows))
    return [(i, list(bias), list(bias.values())) for i, bias in biases if bias]


def _masks(rows: Sequence[SamplingRow]) -> list[Triples]:
    """-inf to add, not to set, so that a NaN below stays visible."""
    return [(i, row.masked, -np.inf) for i, row in enumerate(rows) if row.masked]


def _repetitions(rows: Sequence[SamplingRow]) -> list[Triples]:
    """Tokens of prompt and output, each once."""
    penalties = ((i, row, row.params.repetition_penalty) for i, row in enumerate(rows))
    return [(i, np.unique(row.known), penalty) for i, row, penalty in penalties if penalty != 1]


def _usage(rows: Sequence[SamplingRow]) -> list[Triples]:
    """Tokens of the output alone, each once, with their (negative) penalties."""
    found: list[Triples] = []
    for i, row in enumerate(rows):
        frequency, presence = row.params.frequency_penalty, row.params.presence_penalty
        if frequency or presence:
            tokens, times = np.unique(row.output, return_counts=True)
            found.append((i, tokens, -(frequency * times + presence)))
    return found


def _add(logits: Tensor, triples: Sequence[Triples]) -> None:
    place, value = _flat(logits, triples)
    logits.index_put_(place, value, accumulate=True)


def _flat(logits: Tensor, triples: Sequence[Triples]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """((row, token), value) of every triple, each flat and on the device of `logits`."""
    tokens = [np.asarray(tokens, dtype=np.int64) for _, tokens, _ in triples]
    rows = [np.full(len(t), row) for t, (row, _, _) in zip(tokens, triples, strict=True)]
    values = [
        np.broadcast_to(np.asarray(value, dtype=np.float32), t.shape)
        for t, (_, _, value) in zip(tokens, triples, strict=True)
    ]
    row, token, value = (
        torch.from_numpy(np.concatenate(column)).to(logits.device)
        for column in (rows, tokens, values)
    )
    return (row, token), value
