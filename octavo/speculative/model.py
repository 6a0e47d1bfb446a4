"""Guesses of a smaller model, one token after another. Its KV lies in the target's blocks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from octavo.speculative.draft_batch import DraftBatch, draft_batch
from octavo.speculative.proposer import DraftRow


class Drafter(Protocol):
    """A model that drafts."""

    def likeliest(self, batch: DraftBatch) -> list[int]:
        """Compute the batch; of each chosen token the likeliest next one."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """Tokens whose KV is there: all before `end`, and of what was guessed behind it, `guessed`."""

    end: int
    guessed: list[int]

    def reaches(self, row: DraftRow) -> int:
        """Up to where that is the KV of the row's own tokens."""
        known = row.token_ids[self.end : self.end + len(self.guessed)].tolist()
        agreeing = 0
        while agreeing < len(known) and known[agreeing] == self.guessed[agreeing]:
            agreeing += 1
        return self.end + agreeing


class ModelProposer:
    """Asks the model for each row's next tokens, of all rows together.

    It computes every token of a sequence itself, prompts too, before the block that it lies in is
    full: so blocks which are found again hold its KV as they hold the target's.
    """

    def __init__(self, drafter: Drafter, block_size: int) -> None:
        self._drafter = drafter
        self._block_size = block_size
        self._computed: dict[int, _Computed] = {}

    def propose(self, rows: Sequence[DraftRow]) -> list[Sequence[int]]:
        guesses: dict[int, list[int]] = {row.sequence_id: [] for row in rows}
        due = [(row, start) for row in rows if self._is_due(row, start := self._start(row))]
        tokens = [row.token_ids[start:] for row, start in due]
        self._ask([row for row, _ in due], [start for _, start in due], tokens, guesses)
        asking = [row for row, _ in due if row.most > 1]
        while asking:
            mine = [guesses[row.sequence_id] for row in asking]
            starts = [len(row.token_ids) + len(g) - 1 for row, g in zip(asking, mine, strict=True)]
            self._ask(asking, starts, [g[-1:] for g in mine], guesses)
            asking = [row for row in asking if row.most > len(guesses[row.sequence_id])]
        for row, _ in due:
            fed = guesses[row.sequence_id][:-1]
            self._computed[row.sequence_id] = _Computed(len(row.token_ids), fed)
        return [guesses[row.sequence_id] for row in rows]

    def forget(self, sequence_ids: Collection[int]) -> None:
        for sequence_id in sequence_ids:
            self._computed.pop(sequence_id, None)

    def _start(self, row: DraftRow) -> int:
        """The first token whose KV is not there; of a new sequence, behind the full blocks that
        were found."""
        found = row.start - row.start % self._block_size
        known = self._computed.setdefault(row.sequence_id, _Computed(found, []))
        return min(known.reaches(row), len(row.token_ids) - 1)

    def _is_due(self, row: DraftRow, start: int) -> bool:
        return row.most > 0 or len(row.token_ids) // self._block_size > start // self._block_size

    def _ask(
        self,
        rows: Sequence[DraftRow],
        starts: Sequence[int],
        tokens: Sequence[Sequence[int] | np.ndarray],
        guesses: dict[int, list[int]],
    ) -> None:
        """Compute tokens of rows, and add a guess for those that want any."""
        if not rows:
            return
        asking = [i for i, row in enumerate(rows) if row.most > 0]
        batch = draft_batch(rows, starts, tokens, asking, self._block_size)
        for i, token in zip(asking, self._drafter.likeliest(batch), strict=True):
            guesses[rows[i].sequence_id].append(token)
