"""What the worker remembers of each sequence between steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from octavo.base.plan import NewSequence, StepPlan, StepResult
from octavo.base.sampling_params import SamplingParams
from octavo.grammar.guide import Guide
from octavo.sampling.controls import Controls


class Growing:
    """An int32 array that grows at its end, in amortised constant time."""

    def __init__(self, values: Sequence[int] = ()) -> None:
        self._buffer = np.array(values, dtype=np.int32)
        self._length = len(self._buffer)

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> np.ndarray:
        return self._buffer[: self._length]

    def cut(self, length: int) -> None:
        """Forget what is behind the first `length` values."""
        assert length <= self._length, (length, self._length)
        self._length = length

    def extend(self, values: Sequence[int]) -> None:
        end = self._length + len(values)
        if end > len(self._buffer):
            self._buffer = np.resize(self._buffer, max(2 * end, 16))
        self._buffer[self._length : end] = values
        self._length = end


FindGuide = Callable[[SamplingParams], Guide | None]


class SequenceState:
    """One sequence as the worker knows it: tokens known, blocks held, how to sample."""

    def __init__(self, new: NewSequence, num_groups: int, guide: Guide | None) -> None:
        self.tokens = Growing(new.token_ids)
        self.tables = [Growing() for _ in range(num_groups)]
        self.prompt_len = new.prompt_len
        self.params: SamplingParams = new.params
        self.stop_ids = new.stop_ids
        self.logprobs = new.logprobs
        self.controls = Controls(new.params, new.stop_ids)
        self.guide = guide  # of a structure
        if guide is not None:
            for token in new.token_ids[new.prompt_len :]:
                guide.take(token)


class States:
    """All sequences that run, by id. Follows plans and results; decides nothing."""

    def __init__(
        self,
        num_groups: int,
        replaced: Collection[int] = (),
        guide: FindGuide = lambda params: None,
    ) -> None:
        """
        Args:
            replaced: groups whose tables come whole with every row: those of states.
            guide: who follows an answer that is to have a structure.
        """
        self._guide = guide
        self._num_groups = num_groups
        self._replaced = frozenset(replaced)
        self._states: dict[int, SequenceState] = {}

    def __getitem__(self, sequence_id: int) -> SequenceState:
        return self._states[sequence_id]

    def __len__(self) -> int:
        return len(self._states)

    def follow(self, plan: StepPlan) -> None:
        for gone in plan.dropped:
            self._states.pop(gone, None)  # unknown after an interrupt before it was introduced
        for new in plan.new:
            guide = self._guide(new.params)
            self._states[new.sequence_id] = SequenceState(new, self._num_groups, guide)
        for row in plan.rows:
            tables = self._states[row.sequence_id].tables
            for g, (table, blocks) in enumerate(zip(tables, row.new_blocks, strict=True)):
                if blocks:
                    table.cut(0 if g in self._replaced else row.kept)
                    table.extend(blocks)

    def learn(self, result: StepResult) -> None:
        """The last draw of a row is the sequence's own; forks are introduced with theirs."""
        own = {drawn.sequence_id: drawn.token_ids for drawn in result.rows}
        for sequence_id, token_ids in own.items():
            self._states[sequence_id].tokens.extend(token_ids)
