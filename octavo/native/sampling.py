"""Sampling by the native library; the same meaning as `octavo.sampling.sampler`, which uses torch.

Here are the arrays that csrc/sample.h reads and fills.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from octavo.base.plan import TokenLogprobs
from octavo.native.interface import Pool
from octavo.sampling.rows import (
    Drawn,
    SamplingRow,
    biases,
    fault,
    masks,
    noise,
    repetitions,
    usage,
)

Doubles = NDArray[np.float64]


def sample(pool: Pool, logits: NDArray[np.float32], rows: Sequence[SamplingRow]) -> list[Drawn]:
    """Draw the next token of every row; what a row gets depends on that row alone, bit for bit.

    Args:
        logits: [rows, vocab], unchanged; vocab may be wider than the tokenizer's.
    """
    assert len(logits) == len(rows), f"{len(logits)} logit rows for {len(rows)} rows"
    if not rows:
        return []
    vocab = logits.shape[1]
    drawn = np.empty((len(rows), 4))
    width = min(vocab, max(row.params.logprobs or 0 for row in rows))
    likely = np.empty((len(rows), width, 2))
    pool.sample(logits, _controls(rows, vocab), _edits(rows), drawn, likely)
    return [
        _drawn(row, found, top)
        for row, found, top in zip(rows, drawn.tolist(), likely, strict=True)
    ]


def _controls(rows: Sequence[SamplingRow], vocab: int) -> Doubles:
    """[rows, 6]: temperature, min_p, top_k, top_p, noise, logprobs."""
    uniforms = iter(noise([row for row in rows if not row.greedy]).tolist())
    return np.array(
        [
            (
                0.0 if row.greedy else p.temperature,
                p.min_p,
                min(p.top_k, vocab),
                p.top_p,
                0.0 if row.greedy else next(uniforms),
                -1 if p.logprobs is None else min(p.logprobs, vocab),
            )
            for row in rows
            for p in (row.params,)
        ],
        dtype=np.float64,
    )


def _drawn(row: SamplingRow, found: list[float], top: Doubles) -> Drawn:
    token, peak, logprob, rank = found
    if error := fault(peak):
        return Drawn(-1, error=error)
    count = row.params.logprobs
    if count is None:
        return Drawn(int(token))
    likeliest = [(int(token), logprob) for token, logprob in top[:count].tolist()]
    return Drawn(int(token), TokenLogprobs(int(token), logprob, int(rank), likeliest))


def _edits(rows: Sequence[SamplingRow]) -> Doubles:
    """[edits, 4]: row, token, and scale and shift of its logit, by row and in order."""
    parts = [
        *(_edit(row, tokens, 1, shift) for row, tokens, shift in biases(rows) + masks(rows)),
        *(_edit(row, tokens, scale, 0) for row, tokens, scale in repetitions(rows)),
        *(_edit(row, tokens, 1, shift) for row, tokens, shift in usage(rows)),
    ]
    edits = np.concatenate([np.empty((0, 4)), *parts])
    return edits[np.argsort(edits[:, 0], kind="stable")]


def _edit(row: int, tokens: ArrayLike, scale: ArrayLike, shift: ArrayLike) -> Doubles:
    edit = np.empty((len(np.asarray(tokens)), 4))
    edit[:, 0], edit[:, 1], edit[:, 2], edit[:, 3] = row, tokens, scale, shift
    return edit
