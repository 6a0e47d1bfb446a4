"""Sampling by the native library; the same meaning as `octavo.sampling.sampler`, which uses torch.

Here are the arrays that csrc/sample.h reads and fills.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.base.plan import TokenLogprobs
from octavo.native.interface import Sampler
from octavo.sampling.processors import NO_PROCESSORS, Logits, Processors, process, users
from octavo.sampling.rows import Drawn, SamplingRow, fault, noise

Doubles = NDArray[np.float64]
Ids = NDArray[np.int32]
Counts = NDArray[np.int64]
_NONE = np.empty(0, dtype=np.int32)


def sample(
    pool: Sampler,
    logits: Logits,
    rows: Sequence[SamplingRow],
    processors: Processors = NO_PROCESSORS,
) -> list[Drawn]:
    """Draw the next token of every row; what a row gets depends on that row alone, bit for bit.

    Args:
        logits: [rows, vocab], unchanged; vocab may be wider than the tokenizer's.
        processors: those that rows may name.
    """
    assert len(logits) == len(rows), f"{len(logits)} logit rows for {len(rows)} rows"
    if not rows:
        return []
    named = users(rows)
    work = logits[named]
    wrong = {}
    for i, mine in zip(named, work, strict=True):
        if error := process(mine, rows[i], processors):
            wrong[i] = error
    told = [-1 if row.logprobs is None else row.told(logits.shape[1]) for row in rows]
    counts, ids = _ids(rows)
    controls, room = _controls(rows, named, told, counts)
    drawn, likely = np.empty((len(rows), 6)), np.zeros((room, 2))
    pool.sample(logits, work, controls, _masks(rows), ids, _edits(rows), drawn, likely)
    errors = [wrong.get(i) or fault(peak) for i, peak in enumerate(drawn[:, 1].tolist())]
    logprobs = _logprobs(rows, drawn, controls, likely) if max(told) >= 0 else [None] * len(rows)
    return [
        Drawn(-1, error=error) if error else Drawn(token, told_of)
        for token, told_of, error in zip(_whole(drawn[:, 0]), logprobs, errors, strict=True)
    ]


def _ids(rows: Sequence[SamplingRow]) -> tuple[Counts, Ids]:
    """Tokens that rows speak of, one row behind the other, and how many of each kind, [rows, 4]:
    prompt and output where there are penalties, those allowed, those named."""
    counts = np.zeros((len(rows), 4), dtype=np.int64)
    parts: list[NDArray[np.integer]] = [_NONE]
    for i, row in enumerate(rows):
        known = row.known if row.penalised else _NONE
        if len(known) or len(row.allowed) or len(row.named):
            prompt = min(row.prompt_len, len(known))
            counts[i] = prompt, len(known) - prompt, len(row.allowed), len(row.named)
            parts += known, row.allowed, row.named
    return counts, np.concatenate(parts).astype(np.int32, copy=False)


def _controls(
    rows: Sequence[SamplingRow], named: Sequence[int], told: Sequence[int], counts: Counts
) -> tuple[Doubles, int]:
    """[rows, 19], the fields of `Controls` in csrc/sample.h; and the room for likely tokens.

    Args:
        named: rows that have logits of their own to draw from, after processors.
        told: likeliest tokens to tell of for each row, -1 for nothing.
    """
    table = np.zeros((len(rows), 19))
    table[:, :8] = [row.ready.numbers for row in rows]
    random = [i for i, row in enumerate(rows) if row.random]
    table[random, 8] = noise([rows[i] for i in random])
    table[:, 9] = [-1 if row.given is None else row.given for row in rows]
    table[:, 10] = -1
    table[named, 10] = range(len(named))
    table[:, 11] = told
    likely = np.cumsum(np.maximum(told, 0) + counts[:, 3])
    table[1:, 12] = likely[:-1]
    ends = np.cumsum(counts).reshape(counts.shape)
    table[:, 13:17] = ends - counts
    table[:, 17] = ends[:, 3]
    masked = [row.mask is not None for row in rows]
    table[:, 18] = np.where(masked, np.cumsum(masked) - 1, -1)
    return table, int(likely[-1])


def _masks(rows: Sequence[SamplingRow]) -> NDArray[np.uint32]:
    """[masks, words], of the rows that have one."""
    masks = [row.mask for row in rows if row.mask is not None]
    return np.stack(masks).view(np.uint32) if masks else np.empty((0, 0), dtype=np.uint32)


def _logprobs(
    rows: Sequence[SamplingRow], drawn: Doubles, controls: Doubles, likely: Doubles
) -> list[TokenLogprobs | None]:
    """Of each row that asked for them. `controls` say where in `likely` its tokens are."""
    pairs = list(zip(_whole(likely[:, 0]), likely[:, 1].tolist(), strict=True))
    places = controls[:, [11, 12]].astype(np.int64).tolist()
    return [
        None
        if told < 0
        else TokenLogprobs(
            int(token),
            logprob,
            int(rank),
            pairs[begin : begin + int(found)],
            pairs[begin + told : begin + told + len(row.named)],
            log_mass if row.processed else None,
        )
        for row, (token, _, logprob, rank, log_mass, found), (told, begin) in zip(
            rows, drawn.tolist(), places, strict=True
        )
    ]


def _whole(numbers: Doubles) -> list[int]:
    whole: list[int] = numbers.astype(np.int64).tolist()
    return whole


def _edits(rows: Sequence[SamplingRow]) -> Doubles:
    """[edits, 3], row, token and what is added to its logit, by row."""
    shifts = [(i, *row.shifts) for i, row in enumerate(rows)]
    shifts = [shift for shift in shifts if len(shift[1])]
    edits = np.empty((sum(len(tokens) for _, tokens, _ in shifts), 3))
    if shifts:
        owners, tokens, by = zip(*shifts, strict=True)
        edits[:, 0] = np.repeat(owners, [len(part) for part in tokens])
        edits[:, 1] = np.concatenate(tokens)
        edits[:, 2] = np.concatenate(by)
    return edits
