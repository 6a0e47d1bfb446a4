"""One plan in the making: rows, and what they leave of the step's budgets. Knows tables and counts;
not who comes first, or gives way."""

from __future__ import annotations

import msgspec

from octavo.base.plan import NewSequence, Row, StepPlan
from octavo.core.kv_manager import KVManager
from octavo.core.sequence import Sequence

# Tokens of a step whose logits are wanted besides those that one token of each sequence is drawn
# from, at most: each takes a row as wide as the vocabulary.
MOST_TOLD = 64  # prompt positions
MOST_DRAFTS = 256


class _Part(msgspec.Struct, frozen=True, eq=False):
    """A row that has blocks for its tokens."""

    sequence: Sequence
    start: int
    length: int
    end: int  # of its blocks' tokens
    follows: bool
    draws: tuple[int, ...]
    tells: tuple[int, int]


class PlanBuilder:
    """Adds rows to a step. What they leave of the budget and of memory is for drafts, at last.

    Args:
        budget: tokens that the step may compute, drafts included.
        limit: drafts that a row may have.
        most_told: prompt positions that the step may tell of.
    """

    def __init__(self, manager: KVManager, budget: int, limit: int, most_told: int) -> None:
        self.budget = budget
        self.limit = limit
        self._manager = manager
        self._new: list[NewSequence] = []
        self._parts: list[_Part] = []
        self._told = most_told

    @property
    def sequences(self) -> set[int]:
        """Those that have a row, by id."""
        return {part.sequence.sequence_id for part in self._parts}

    def takes(self, sequence: Sequence) -> bool:
        """Whether there can be a row of a sequence that waits."""
        return self.budget > 0 and (self._told > 0 or not sequence.state.tells)

    def length(self, sequence: Sequence, behind: int = 0) -> int:
        """Tokens of a sequence's next row, where so many others behind it shall have one each."""
        known = max(1, sequence.num_known - sequence.num_computed)
        length = min(known, self.budget - behind)
        if sequence.state.tells:
            length = min(length, self._told)
        return self._manager.states.until(sequence, length)

    def add(self, sequence: Sequence, length: int) -> bool:
        """A sequence's next row; False where blocks are missing."""
        assert length >= 1, f"sequence {sequence.sequence_id}: {length} tokens"
        start = sequence.num_computed
        follows = start == sequence.num_known  # the token is one that a row under way draws
        end = sequence.num_expected if follows else start + length
        if not self._manager.extend(sequence, end):
            return False
        if not sequence.is_introduced:
            sequence.is_introduced = True
            self._new.append(_introduce(sequence))
        sequence.num_computed = min(start + length, sequence.num_known)
        sequence.check()
        self._manager.publish(sequence)
        draws = (sequence.child,) if follows else _draws(sequence)
        tells = _tells(sequence, start, length)
        self._parts.append(_Part(sequence, start, length, end, follows, draws, tells))
        self.budget -= length
        self._told -= tells[1] - tells[0]
        return True

    def build(self, step: int, dropped: list[int]) -> StepPlan:
        left = min(self.budget, MOST_DRAFTS) if self.limit else 0
        rows = []
        for part in self._parts:
            drafts = self._drafts(part, left) if left > 0 else 0
            left -= drafts
            rows.append(self._row(part, drafts))
        return StepPlan(step, self._new, rows, dropped, limit=self.limit)

    def _row(self, part: _Part, drafts: int) -> Row:
        sequence = part.sequence
        if part.draws:
            sequence.under_way.append(1 + drafts)
        kept, blocks = self._manager.unsent(sequence)
        return Row(
            sequence.sequence_id,
            part.start,
            part.length,
            kept,
            blocks,
            part.draws,
            drafts=drafts,
            follows=part.follows,
            tells=part.tells,
        )

    def _drafts(self, part: _Part, left: int) -> int:
        """That a row may have, as far as tokens go and blocks are there."""
        sequence = part.sequence
        if not part.draws or sequence.state.unborn or sequence.state.search:
            return 0
        drafts = min(self.limit, left, sequence.num_left - 1)
        there = drafts > 0 and self._manager.extend_for_drafts(sequence, part.end + drafts)
        return drafts if there else 0


def _draws(sequence: Sequence) -> tuple[int, ...]:
    """Children whose next token its row draws: those to be forked from it, then itself."""
    if sequence.num_computed < sequence.num_known or sequence.num_left == 0:
        return ()
    own, unborn = sequence.child, sequence.state.unborn
    if not unborn or sequence.state.search:
        return (own,)
    return (*range(own + 1, own + 1 + unborn), own)


def _tells(sequence: Sequence, start: int, length: int) -> tuple[int, int]:
    """Prompt positions: the logits of each token tell of the next one."""
    if not sequence.state.tells:
        return 0, 0
    first = max(sequence.state.tell_from, start + 1)
    end = min(start + length + 1, sequence.state.prompt_len)
    return (first, end) if first < end else (0, 0)


def _introduce(sequence: Sequence) -> NewSequence:
    request, search = sequence.request, sequence.state.search
    return NewSequence(
        sequence_id=sequence.sequence_id,
        token_ids=list(sequence.token_ids),
        prompt_len=len(request.prompt_token_ids),
        params=request.params,
        stop_ids=(*request.eos_token_ids, *request.params.stop_ids),
        logprobs=search.num_logprobs if search else request.params.logprobs,
    )
