"""Sampling by the native library; the same meaning as `octavo.sampling.sampler`, which uses torch.

Here are the arrays that csrc/sample.h reads and fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from octavo.base.plan import TokenLogprobs
from octavo.base.sampling_params import SamplingParams
from octavo.native.interface import Pool
from octavo.sampling.rows import (
    Drawn,
    SamplingRow,
    biases,
    fault,
    masks,
    noise,
)

Doubles = NDArray[np.float64]
Tokens = NDArray[np.int32] | NDArray[np.int64]
_NONE = np.empty(0, dtype=np.int32)


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
    width = min(vocab, max(row.logprobs or 0 for row in rows))
    likely = np.empty((len(rows), width, 2))
    known = [row.known if _penalised(row.params) else _NONE for row in rows]
    tokens = np.concatenate(known, dtype=np.int32, casting="same_kind")
    pool.sample(logits, _controls(rows, known, vocab), tokens, _edits(rows), drawn, likely)
    return [
        _drawn(row, found, top)
        for row, found, top in zip(rows, drawn.tolist(), likely, strict=True)
    ]


def _penalised(params: SamplingParams) -> bool:
    added = params.frequency_penalty or params.presence_penalty
    return params.repetition_penalty != 1 or bool(added)


def _controls(rows: Sequence[SamplingRow], known: Sequence[Tokens], vocab: int) -> Doubles:
    """[rows, 12], the fields of `Controls` in csrc/sample.h."""
    uniforms = iter(noise([row for row in rows if not row.greedy]).tolist())
    ends = accumulate(len(tokens) for tokens in known)
    return np.array(
        [
            (
                0 if row.greedy else p.temperature,
                p.min_p,
                min(p.top_k, vocab),
                p.top_p,
                0 if row.greedy else next(uniforms),
                -1 if row.logprobs is None else min(row.logprobs, vocab),
                p.repetition_penalty,
                p.frequency_penalty,
                p.presence_penalty,
                end - len(tokens),
                end - len(tokens[row.prompt_len :]),
                end,
            )
            for row, tokens, end in zip(rows, known, ends, strict=True)
            for p in (row.params,)
        ],
        dtype=np.float64,
    )


def _drawn(row: SamplingRow, found: list[float], top: Doubles) -> Drawn:
    token, peak, logprob, rank = found
    if error := fault(peak):
        return Drawn(-1, error=error)
    count = row.logprobs
    if count is None:
        return Drawn(int(token))
    likeliest = [(int(token), logprob) for token, logprob in top[:count].tolist()]
    return Drawn(int(token), TokenLogprobs(int(token), logprob, int(rank), likeliest))


def _edits(rows: Sequence[SamplingRow]) -> Doubles:
    """[edits, 3], row, token and what is added to its logit, by row."""
    shifts = sorted(biases(rows) + masks(rows), key=itemgetter(0))
    return np.concatenate([np.empty((0, 3)), *(_edit(*triple) for triple in shifts)])


def _edit(row: int, tokens: ArrayLike, shift: ArrayLike) -> Doubles:
    edit = np.empty((len(np.asarray(tokens)), 3))
    edit[:, 0], edit[:, 1], edit[:, 2] = row, tokens, shift
    return edit
