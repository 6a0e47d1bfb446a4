"""Guesses of an EAGLE-3 head, from what the target has in mind.

        position            0       1       2       3       4
        token               a       b       c       d       ?
        the target's        f0      f1      f2              outputs of its step before
        the head's slot     - a     f0 b    f1 c    f2 d -> e,   then its own output with e -> ...

A slot holds the KV of a token and of the features before it, so it depends on the tokens up to it
alone, as the target's does; and the head is one step behind the target.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from octavo.speculative.draft_batch import DraftBatch, draft_batch
from octavo.speculative.proposer import DraftRow


class Head(Protocol):
    """`first` and `next` give of chosen tokens the likeliest next one, and what the head has in
    mind then, float32 [S, hidden]."""

    def told(self) -> np.ndarray:
        """The features at all tokens of the target's last step: float32 [T, width]."""

    def first(self, batch: DraftBatch, features: np.ndarray) -> tuple[list[int], np.ndarray]:
        """`features`: float32 [T, width], the target's before each token."""

    def next(self, batch: DraftBatch, mind: np.ndarray) -> tuple[list[int], np.ndarray]:
        """`mind`: float32 [T, hidden], the head's own."""


@dataclass(frozen=True, slots=True)
class _Features:
    """Of positions from `start` on: [positions, width]."""

    start: int
    values: np.ndarray

    @property
    def end(self) -> int:
        return self.start + len(self.values)

    def then(self, later: _Features) -> _Features:
        """Later ones take the place of those that they begin before."""
        if not self.start <= later.start <= self.end:
            return later
        kept = self.values[: later.start - self.start]
        return _Features(self.start, np.concatenate((kept, later.values)))

    def part(self, start: int, end: int) -> np.ndarray:
        """Zeros where there are none."""
        part = np.zeros((end - start, self.values.shape[1]), np.float32)
        first, last = max(start, self.start), min(end, self.end)
        if first < last:
            part[first - start : last - start] = self.values[first - self.start : last - self.start]
        return part


class EagleProposer:
    """Asks the head for each row's next tokens, of all rows together.

    It computes every slot of a sequence before the block that it lies in is full, or a step later.
    Features are lost of what was found in a cache or lay before a preemption: what is missing costs
    a guess, and nothing else.
    """

    def __init__(self, head: Head, width: int, block_size: int) -> None:
        """`width`: numbers of a token's features."""
        self._head, self._block_size = head, block_size
        self._nothing = _Features(0, np.empty((0, width), np.float32))
        self._features: dict[int, _Features] = {}
        self._ends: dict[int, int] = {}  # slots up to there are computed
        self._step: list[tuple[int, int, int]] = []  # sequence, start and end of its rows

    def propose(self, rows: Sequence[DraftRow]) -> list[Sequence[int]]:
        self._remember()
        guesses: dict[int, list[int]] = {row.sequence_id: [] for row in rows}
        due = [row for row in rows if self._is_due(row, self._start(row))]
        if due:
            self._guess(due, guesses)
        found = [guesses[row.sequence_id] for row in rows]
        self._step = [
            (row.sequence_id, row.start, len(row.token_ids) + len(guess))
            for row, guess in zip(rows, found, strict=True)
        ]
        return list(found)

    def forget(self, sequence_ids: Collection[int]) -> None:
        for sequence_id in sequence_ids:
            self._features.pop(sequence_id, None)
            self._ends.pop(sequence_id, None)
        gone = frozenset(sequence_ids)
        self._step = [(-1 if s in gone else s, start, end) for s, start, end in self._step]

    def _remember(self) -> None:
        """The features of the step before, which the next one overwrites."""
        told = np.array(self._head.told()) if self._step else np.empty((0, 0))
        if len(told) != sum(end - start for _, start, end in self._step):
            return  # that step was never computed
        at = 0
        for sequence_id, start, end in self._step:
            new = _Features(start, told[at : at + end - start])
            at += end - start
            if sequence_id >= 0:
                known = self._features.get(sequence_id, new)
                self._features[sequence_id] = known.then(new)

    def _is_due(self, row: DraftRow, start: int) -> bool:
        return _asks(row) or (row.start + 1) // self._block_size > start // self._block_size

    def _start(self, row: DraftRow) -> int:
        """The first slot that is not computed; of a new sequence, behind what was found."""
        return min(self._ends.setdefault(row.sequence_id, row.start), row.start)

    def _guess(self, rows: list[DraftRow], guesses: dict[int, list[int]]) -> None:
        likeliest, mind = self._first(rows)
        rows = [row for row in rows if _asks(row)]
        while rows:
            for row, token in zip(rows, likeliest, strict=True):
                guesses[row.sequence_id].append(token)
            going = [i for i, row in enumerate(rows) if row.most > len(guesses[row.sequence_id])]
            rows, mind = [rows[i] for i in going], mind[going]
            if rows:
                likeliest, mind = self._next(rows, [guesses[row.sequence_id] for row in rows], mind)

    def _first(self, rows: list[DraftRow]) -> tuple[list[int], np.ndarray]:
        """With the target's features, up to the row's first token."""
        starts = [self._start(row) for row in rows]
        tokens = [row.token_ids[s : row.start + 1] for row, s in zip(rows, starts, strict=True)]
        asking = [i for i, row in enumerate(rows) if _asks(row)]
        batch = draft_batch(rows, starts, tokens, asking, self._block_size)
        known = [self._taken(row, start) for row, start in zip(rows, starts, strict=True)]
        return self._head.first(batch, np.concatenate(known))

    def _next(
        self, rows: list[DraftRow], guesses: list[list[int]], mind: np.ndarray
    ) -> tuple[list[int], np.ndarray]:
        """With each row's latest guess."""
        pairs = zip(rows, guesses, strict=True)
        starts = [len(row.token_ids) + len(guess) - 1 for row, guess in pairs]
        tokens = [guess[-1:] for guess in guesses]
        batch = draft_batch(rows, starts, tokens, range(len(rows)), self._block_size)
        return self._head.next(batch, mind)

    def _taken(self, row: DraftRow, start: int) -> np.ndarray:
        """Features of the slots from `start` on, of which none are needed any more then."""
        self._ends[row.sequence_id] = row.start + 1
        return self._features.pop(row.sequence_id, self._nothing).part(start - 1, row.start)


def _asks(row: DraftRow) -> bool:
    """Only of the newest token are the features known before it."""
    return row.most > 0 and row.start == len(row.token_ids) - 1
