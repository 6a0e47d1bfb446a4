"""Bias, masks and penalties: what a request does to its logits before anything is drawn.

Each control of all rows acts in one operation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from octavo.sampling.rows import SamplingRow, Triples, biases, masks, repetitions, usage


def adjusted(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Logits, float32 [rows, vocab], after bias, min_tokens masks and penalties.

    Returns `logits` itself where no row uses any of them; never changes it.
    """
    shifts = biases(rows) + masks(rows)
    factors, penalties = repetitions(rows), usage(rows)
    if not (shifts or factors or penalties):
        return logits
    logits = logits.clone()
    if shifts:
        _add(logits, shifts)
    if factors:
        place, factor = _flat(logits, factors)
        value = logits[place]
        logits[place] = torch.where(value > 0, value / factor, value * factor)
    if penalties:
        _add(logits, penalties)
    return logits


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
