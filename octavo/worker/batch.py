"""Rows of a plan -> flat numpy arrays. The one place where rows become arrays.

tokens     a a a a a b c c c        R = 3 rows, T = 9 tokens, no padding
row_starts 0         5 6     9
positions  0 1 2 3 4 17 8 9 10      each counted in its own sequence
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.attention.batch import AttentionBatch
from octavo.base.plan import Row, StepPlan
from octavo.sampling.rows import SamplingRow
from octavo.worker.states import States


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input. T tokens, S rows that sample."""

    token_ids: np.ndarray  # [T] int64
    positions: np.ndarray  # [T] int64
    attention: AttentionBatch
    chosen: np.ndarray  # [S] int64: tokens whose logits are wanted
    sampling: list[SamplingRow]  # S
    sequence_ids: list[int]  # S


def build_batch(plan: StepPlan, states: States, block_size: int, num_groups: int) -> Batch:
    """Arrays for a plan that `states` has followed."""
    rows = plan.rows
    lengths = np.array([row.length for row in rows], dtype=np.int32)
    row_starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    tokens = [states[r.sequence_id].tokens.values[r.start : r.start + r.length] for r in rows]
    sampling = [(i, row) for i, row in enumerate(rows) if row.samples]
    return Batch(
        token_ids=np.concatenate(tokens).astype(np.int64),
        positions=np.concatenate([np.arange(r.start, r.start + r.length) for r in rows]),
        attention=AttentionBatch(
            row_starts=row_starts,
            context_lens=np.array([r.start + r.length for r in rows], dtype=np.int32),
            tables=[_tables(rows, states, group) for group in range(num_groups)],
            block_size=block_size,
        ),
        chosen=np.array([row_starts[i + 1] - 1 for i, _ in sampling], dtype=np.int64),
        sampling=[_sampling_row(row, states) for _, row in sampling],
        sequence_ids=[row.sequence_id for _, row in sampling],
    )


def _tables(rows: list[Row], states: States, group: int) -> np.ndarray:
    """[R, most blocks] int32; block 0 where a row has fewer."""
    held = [states[row.sequence_id].tables[group].values for row in rows]
    table = np.zeros((len(rows), max(map(len, held))), dtype=np.int32)
    for line, blocks in zip(table, held, strict=True):
        line[: len(blocks)] = blocks
    return table


def _sampling_row(row: Row, states: States) -> SamplingRow:
    state = states[row.sequence_id]
    return SamplingRow(
        params=state.params,
        child=0,
        position=len(state.tokens),
        prompt_len=state.prompt_len,
        token_ids=state.tokens.values,
        stop_ids=state.stop_ids,
    )
