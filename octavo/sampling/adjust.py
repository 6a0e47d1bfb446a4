"""What a request does to its logits before anything is drawn: processors, allowed tokens, masks,
bias and penalties. But for processors, each control of all rows acts in one operation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from octavo.sampling.processors import Processors, process, users
from octavo.sampling.rows import SamplingRow

Triples = tuple[int, ArrayLike, ArrayLike]  # one row, its tokens, a value for each or for all


def processed(
    logits: Tensor, rows: Sequence[SamplingRow], processors: Processors
) -> tuple[Tensor, dict[int, str]]:
    """Logits after the processors that rows name, and what is wrong with the rows that failed.

    Returns `logits` itself where no row names any; never changes it.
    """
    named, errors = users(rows), {}
    if named:
        logits = logits.clone()
    for i in named:
        work = logits[i].cpu().numpy()
        if error := process(work, rows[i], processors):
            errors[i] = error
        logits[i] = torch.from_numpy(work)
    return logits, errors


def adjusted(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Logits, float32 [rows, vocab], after all controls but the processors.

    Returns `logits` itself where no row uses any of them; never changes it.
    """
    masked = [i for i, row in enumerate(rows) if row.mask is not None]
    allowed = [(i, row.allowed) for i, row in enumerate(rows) if len(row.allowed)]
    shifts: list[Triples] = [(i, *row.shifts) for i, row in enumerate(rows)]
    shifts = [triple for triple in shifts if len(np.asarray(triple[1]))]
    factors, penalties = _repetitions(rows), _usage(rows)
    if not (masked or allowed or shifts or factors or penalties):
        return logits
    logits = logits.clone()
    for i, tokens in allowed:
        ids = torch.from_numpy(tokens).long().to(logits.device)
        kept = logits[i, ids]
        logits[i] += -torch.inf  # added, not set, so that a NaN stays visible
        logits[i, ids] = kept
    for i in masked:
        logits[i] += _barred(rows[i], logits.shape[1]).to(logits.device)
    if shifts:
        _add(logits, shifts)
    if factors:
        place, factor = _flat(logits, factors)
        value = logits[place]
        logits[place] = torch.where(value > 0, value / factor, value * factor)
    if penalties:
        _add(logits, penalties)
    return logits


def _barred(row: SamplingRow, vocab: int) -> Tensor:
    """float32 [vocab]: -inf where a row's mask has no bit, else 0."""
    assert row.mask is not None
    bits = np.unpackbits(row.mask.view(np.uint8), bitorder="little")[:vocab]
    bits = np.pad(bits, (0, vocab - len(bits)))
    return torch.from_numpy(np.where(bits, np.float32(0), np.float32(-np.inf)))


def _repetitions(rows: Sequence[SamplingRow]) -> list[Triples]:
    """Tokens of prompt and output, each once, with what their logits are divided by where
    positive and multiplied by where not."""
    penalised = ((i, row, row.params.repetition_penalty) for i, row in _penalised(rows))
    return [(i, np.unique(row.known), factor) for i, row, factor in penalised if factor != 1]


def _usage(rows: Sequence[SamplingRow]) -> list[Triples]:
    """Tokens of the output alone, each once, with their (negative) penalties to add."""
    found: list[Triples] = []
    for i, row in _penalised(rows):
        frequency, presence = row.params.frequency_penalty, row.params.presence_penalty
        if frequency or presence:
            tokens, times = np.unique(row.output, return_counts=True)
            found.append((i, tokens, -(frequency * times + presence)))
    return found


def _penalised(rows: Sequence[SamplingRow]) -> list[tuple[int, SamplingRow]]:
    return [(i, row) for i, row in enumerate(rows) if row.penalised]


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
