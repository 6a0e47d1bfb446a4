"""Rows of a plan -> flat numpy arrays. The one place where rows become arrays.

tokens     a a a a a b c c c        R = 3 rows, T = 9 tokens, no padding
row_starts 0         5 6     9
positions  0 1 2 3 4 17 8 9 10      each counted in its own sequence
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.attention.batch import AttentionBatch
from octavo.base.plan import StepPlan
from octavo.sampling.rows import SamplingRow
from octavo.worker.states import SequenceState, States


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input. T tokens, S draws: the next token of S children."""

    token_ids: np.ndarray  # [T] int32
    positions: np.ndarray  # [T] int64
    attention: AttentionBatch
    chosen: np.ndarray  # [S] int64: tokens whose logits are wanted
    sampling: list[SamplingRow]  # S
    drawn_for: list[tuple[int, int]]  # S: sequence id, child


def build_batch(plan: StepPlan, states: States, block_size: int, num_groups: int) -> Batch:
    """Arrays for a plan that `states` has followed."""
    rows = plan.rows
    held = [states[row.sequence_id] for row in rows]
    starts = np.array([row.start for row in rows], dtype=np.int32)
    lengths = np.array([row.length for row in rows], dtype=np.int32)
    row_starts = np.concatenate(([0], np.cumsum(lengths)), dtype=np.int32)
    tokens = [
        state.tokens.values[row.start : row.start + row.length]
        for state, row in zip(held, rows, strict=True)
    ]
    offsets = np.repeat(starts - row_starts[:-1], lengths)  # [T]: of positions from indices
    draws = [(i, child) for i, row in enumerate(rows) for child in row.draws]
    chosen = [i for i, _ in draws]
    return Batch(
        token_ids=np.concatenate(tokens),
        positions=np.arange(len(offsets), dtype=np.int64) + offsets,
        attention=AttentionBatch(
            row_starts=row_starts,
            context_lens=starts + lengths,
            tables=[_tables([s.tables[g].values for s in held]) for g in range(num_groups)],
            block_size=block_size,
        ),
        chosen=row_starts[1:][chosen].astype(np.int64) - 1,
        sampling=[_sampling_row(held[i], child) for i, child in draws],
        drawn_for=[(rows[i].sequence_id, child) for i, child in draws],
    )


def _tables(held: list[np.ndarray]) -> np.ndarray:
    """[R, most blocks] int32; block 0 where a row has fewer."""
    table = np.zeros((len(held), max(map(len, held))), dtype=np.int32)
    for line, blocks in zip(table, held, strict=True):
        line[: len(blocks)] = blocks
    return table


def _sampling_row(state: SequenceState, child: int) -> SamplingRow:
    return SamplingRow(
        params=state.params,
        child=child,
        position=len(state.tokens),
        prompt_len=state.prompt_len,
        token_ids=state.tokens.values,
        stop_ids=state.stop_ids,
        logprobs=state.logprobs,
    )
