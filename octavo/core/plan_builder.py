"""One plan in the making: rows, and what they leave of the step's budgets. Knows tables and counts;
not who comes first, or gives way."""

from __future__ import annotations

from octavo.base.plan import NewSequence, Row, StepPlan
from octavo.core.kv_manager import KVManager
from octavo.core.sequence import Sequence

MOST_TOLD = 64  # prompt positions of which a step tells logprobs: each takes a row of logits


class PlanBuilder:
    """Adds rows to a step.

    Args:
        budget: tokens that the step may compute, drafts included.
        limit: drafts that a row may have.
    """

    def __init__(self, manager: KVManager, budget: int, limit: int) -> None:
        self.rows: list[Row] = []
        self.budget = budget
        self._limit = limit
        self._manager = manager
        self._new: list[NewSequence] = []
        self._told = MOST_TOLD
        self._drafts = 0  # of the row that has blocks and is not added yet

    def length(self, sequence: Sequence, behind: int = 0) -> int:
        """Tokens of a sequence's next row, where so many others behind it shall have one each."""
        known = max(1, sequence.num_known - sequence.num_computed)
        length = min(known, self.budget - behind)
        if sequence.state.tell_from < sequence.state.prompt_len:
            length = min(length, self._told)
        return self._manager.states.until(sequence, length)

    def reserve(self, sequence: Sequence, length: int, behind: int = 0) -> bool:
        """Blocks for a sequence's next row; and for drafts, if so many others still have one left
        each. False where there are not enough."""
        end = _end(sequence, length)
        self._drafts = self._most_drafts(sequence, length, behind)
        if self._drafts and self._manager.extend(sequence, end + self._drafts, spare=behind):
            return True
        self._drafts = 0
        return self._manager.extend(sequence, end)

    def add(self, sequence: Sequence, length: int) -> None:
        """The row that blocks were reserved for."""
        assert length >= 1, f"sequence {sequence.sequence_id}: {length} tokens"
        if not sequence.is_introduced:
            sequence.is_introduced = True
            self._new.append(_introduce(sequence))
        start, follows = sequence.num_computed, _follows(sequence)
        sequence.num_computed = min(start + length, sequence.num_known)
        sequence.check()
        self._manager.publish(sequence)
        kept, blocks = self._manager.unsent(sequence)
        draws = (sequence.child,) if follows else _draws(sequence)
        tells = _tells(sequence, start, length)
        self.rows.append(
            Row(
                sequence.sequence_id,
                start,
                length,
                kept,
                blocks,
                draws,
                drafts=self._drafts,
                follows=follows,
                tells=tells,
            )
        )
        if draws:
            sequence.under_way.append(1 + self._drafts)
        self.budget -= length + self._drafts
        self._told -= tells[1] - tells[0]

    def build(self, step: int, dropped: list[int]) -> StepPlan:
        return StepPlan(step, self._new, self.rows, dropped, limit=self._limit)

    def _most_drafts(self, sequence: Sequence, length: int, behind: int) -> int:
        """That a sequence's next row may have, as far as tokens go."""
        last = sequence.num_computed + length >= sequence.num_known
        if not last or sequence.state.unborn or sequence.state.search:
            return 0
        return max(0, min(self._limit, self.budget - behind - length, sequence.num_left - 1))


def _follows(sequence: Sequence) -> bool:
    """Whether the next row's token is one that a row under way draws."""
    return sequence.num_computed == sequence.num_known


def _end(sequence: Sequence, length: int) -> int:
    """Tokens up to a sequence's next row's last one, at most."""
    return sequence.num_expected if _follows(sequence) else sequence.num_computed + length


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
