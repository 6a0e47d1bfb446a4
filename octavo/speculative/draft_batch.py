"""Rows of a drafting model as arrays: tokens that it computes itself, in the target's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.attention.batch import AttentionBatch
from octavo.speculative.proposer import DraftRow


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """T tokens of R rows; the next token is guessed behind S of them."""

    token_ids: np.ndarray  # [T] int32
    positions: np.ndarray  # [T] int64
    attention: AttentionBatch
    chosen: np.ndarray  # [S] int64: tokens


def draft_batch(
    rows: Sequence[DraftRow],
    starts: Sequence[int],
    tokens: Sequence[Sequence[int] | np.ndarray],
    asking: Sequence[int],
    block_size: int,
) -> DraftBatch:
    """`tokens` of each row, from the position in `starts` on; rows that are `asking` want to know
    what follows their last one."""
    lengths = np.array([len(part) for part in tokens], np.int32)
    row_starts = np.concatenate(([0], np.cumsum(lengths)), dtype=np.int32)
    first = np.array(starts, np.int32)
    offsets = np.repeat(first - row_starts[:-1], lengths)
    groups = range(len(rows[0].tables))
    return DraftBatch(
        token_ids=np.concatenate(tokens, dtype=np.int32, casting="same_kind"),
        positions=np.arange(len(offsets), dtype=np.int64) + offsets,
        attention=AttentionBatch(
            row_starts=row_starts,
            context_lens=first + lengths,
            tables=[_together([row.tables[g] for row in rows]) for g in groups],
            block_size=block_size,
        ),
        chosen=row_starts[1:][list(asking)].astype(np.int64) - 1,
    )


def _together(tables: Sequence[np.ndarray]) -> np.ndarray:
    """[R, most blocks] int32; block 0 where a row has fewer."""
    together = np.zeros((len(tables), max(map(len, tables))), np.int32)
    for line, table in zip(together, tables, strict=True):
        line[: len(table)] = table
    return together
