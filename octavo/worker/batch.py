"""Rows of a plan -> flat numpy arrays. The one place where rows become arrays.

tokens     a a a a a b c d d        R = 3 rows, T = 9 tokens, no padding; d: drafts behind c
row_starts 0         5 6     9
positions  0 1 2 3 4 17 8 9 10      each counted in its own sequence
chosen             4 5 6 7 8        a's next token is drawn, b's, and three of c
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from octavo.attention.batch import AttentionBatch
from octavo.base.plan import Row, StepPlan
from octavo.sampling.rows import SamplingRow
from octavo.speculative.proposer import DraftRow
from octavo.worker.states import SequenceState, States


class Wanted(msgspec.Struct, frozen=True, eq=False):
    """What consecutive draws are for: the next tokens of a child, or told of a prompt."""

    sequence_id: int
    child: int | None  # None: of the prompt
    drafts: Sequence[int]  # that all draws but the last are compared with
    start: int  # the first one's position
    count: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input. T tokens, S draws, which `wanted` splits."""

    token_ids: np.ndarray  # [T] int32
    positions: np.ndarray  # [T] int64
    attention: AttentionBatch
    chosen: np.ndarray  # [S] int64: tokens whose logits are wanted
    sampling: list[SamplingRow]  # S
    wanted: list[Wanted]


def draft_rows(plan: StepPlan, states: States) -> list[DraftRow]:
    """A plan's rows as a proposer sees them."""
    return [_draft_row(row, states[row.sequence_id]) for row in plan.rows]


def build_batch(
    plan: StepPlan,
    states: States,
    drafts: Sequence[Sequence[int]],
    block_size: int,
    num_groups: int,
) -> Batch:
    """Arrays for a plan that `states` has followed; `drafts` of each row."""
    held = [states[row.sequence_id] for row in plan.rows]
    rows = [_Tokens(*of) for of in zip(plan.rows, held, drafts, strict=True)]
    starts = np.array([row.start for row in rows], dtype=np.int32)
    lengths = np.array([row.length for row in rows], dtype=np.int32)
    row_starts = np.concatenate(([0], np.cumsum(lengths)), dtype=np.int32)
    offsets = np.repeat(starts - row_starts[:-1], lengths)  # [T]: of positions from indices
    wanted = [part for row in rows for part in row.wanted]
    ids = [row.sequence_id for row in plan.rows]
    first = dict(zip(ids, (row_starts[:-1] - starts).tolist(), strict=True))
    return Batch(
        token_ids=np.concatenate([row.token_ids[row.start : row.end] for row in rows]),
        positions=np.arange(len(offsets), dtype=np.int64) + offsets,
        attention=AttentionBatch(
            row_starts=row_starts,
            context_lens=starts + lengths,
            tables=[_tables([s.tables[g].values for s in held]) for g in range(num_groups)],
            block_size=block_size,
        ),
        chosen=_chosen(wanted, first),
        sampling=[row for tokens in rows for row in tokens.sampling()],
        wanted=wanted,
    )


class _Tokens:
    """One row's tokens, drafts included, and what is drawn from them."""

    def __init__(self, row: Row, state: SequenceState, drafts: Sequence[int]) -> None:
        self._state = state
        known = state.tokens.values
        self.start = start_of(row, state)
        self.end = self.start + row.length + len(drafts)
        self.length = row.length + len(drafts)
        # Behind a row that draws nothing are tokens of later rows.
        self.token_ids = np.concatenate([known, drafts], dtype=np.int32) if drafts else known
        self.wanted = list(_wanted(row, self.start + row.length, drafts))

    def sampling(self) -> Iterator[SamplingRow]:
        params = self._state.params
        for part in self.wanted:
            for position in range(part.start, part.start + part.count):
                told = part.child is None
                yield SamplingRow(
                    params=params,
                    child=part.child or 0,
                    position=position,
                    prompt_len=self._state.prompt_len,
                    token_ids=self.token_ids,
                    stop_ids=self._state.stop_ids,
                    logprobs=params.prompt_logprobs if told else self._state.logprobs,
                    given=int(self.token_ids[position]) if told else None,
                    controls=self._state.controls,
                )


def _wanted(row: Row, next: int, drafts: Sequence[int]) -> Iterator[Wanted]:
    """`next`: the position behind a row's tokens. Drafts are for the sequence itself, its last
    child."""
    if row.tells[1]:
        first, end = row.tells
        yield Wanted(row.sequence_id, None, (), first, end - first)
    for child in row.draws[:-1]:
        yield Wanted(row.sequence_id, child, (), next, 1)
    for child in row.draws[-1:]:
        yield Wanted(row.sequence_id, child, drafts, next, 1 + len(drafts))


def start_of(row: Row, state: SequenceState) -> int:
    """Where a row begins; one that follows, at the newest token."""
    return len(state.tokens) - 1 if row.follows else row.start


def _draft_row(row: Row, state: SequenceState) -> DraftRow:
    start = start_of(row, state)
    return DraftRow(
        sequence_id=row.sequence_id,
        token_ids=state.tokens.values[: start + row.length],
        prompt_len=state.prompt_len,
        start=start,
        most=row.drafts,
        tables=[table.values for table in state.tables],
    )


def _chosen(wanted: Sequence[Wanted], first: dict[int, int]) -> np.ndarray:
    """[S]: a position's logits are those of the token before it. `first`: by sequence, an
    index less its position."""
    firsts = ((first[part.sequence_id] + part.start - 1, part.count) for part in wanted)
    return np.array([at + i for at, count in firsts for i in range(count)], dtype=np.int64)


def _tables(held: list[np.ndarray]) -> np.ndarray:
    """[R, most blocks] int32; block 0 where a row has fewer."""
    table = np.zeros((len(held), max(map(len, held))), dtype=np.int32)
    for line, blocks in zip(table, held, strict=True):
        line[: len(blocks)] = blocks
    return table
