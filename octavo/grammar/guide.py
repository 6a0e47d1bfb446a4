"""What one answer may say next: its grammar, the tokens it has left, and those for reasoning.

There is one way in for every token, whether it was drawn alone or accepted as a draft, and all that
a guide knows follows from the tokens it took: who is computed again comes to the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from octavo.grammar.completion import Completion, Position
from octavo.grammar.matcher import Compiled, Mask
from octavo.grammar.thinking import ThinkingBudget
from octavo.grammar.vocabulary import Vocabulary


class Structure:
    """A grammar made ready: for masks, and to be closed in time."""

    def __init__(self, compiled: Compiled, completion: Completion | None) -> None:
        self.compiled = compiled
        self.completion = completion  # None: it is not closed in time


class Guide:
    """Follows one answer.

    Where the tokens left are few, a token counts as allowed only if the shortest completion behind
    it still fits. One such completion is kept as a plan: its next token is what is left to draw
    where all else was refused, so an answer that had room to be whole at its beginning is whole at
    its end.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        structure: Structure | None,
        thinking: ThinkingBudget | None,
        max_tokens: int,
    ) -> None:
        self._vocabulary = vocabulary
        self._thinking = thinking
        self._matcher = structure.compiled.matcher() if structure else None
        self._ended = False
        self._left = max_tokens
        self._completion = structure.completion if structure else None
        self._position: Position | None = None  # None: it is not closed in time
        self._plan: list[int] | None = None  # where it has fewer tokens than are known without it
        self._tried: tuple[int, _Ahead] | None = None
        if self._completion is not None and self._completion.bound <= max_tokens:
            self._position = self._completion.start

    @property
    def is_whole(self) -> bool | None:
        """The answer so far is all that its grammar asks for; None where it has none."""
        return None if self._matcher is None else self._ended or self._matcher.is_whole

    def copy(self) -> Guide:
        """One that goes its own way from here."""
        other = copy(self)
        other._matcher = None if self._matcher is None else self._matcher.copy()
        return other

    def masks(self, drafts: Sequence[int]) -> list[Mask | None]:
        """Which tokens may be drawn next, and behind each of `drafts`; None: any. Behind one that
        may not be drawn nothing is."""
        thinking, taken = self._thinking, 0
        found = [self._mask(thinking)]
        for draft in drafts:
            if self._matcher is not None:
                if not self._matcher.consume(draft):
                    break
                taken += 1
            thinking = thinking and thinking.after(draft)
            found.append(self._mask(thinking))
        if self._matcher is not None:
            self._matcher.rollback(taken)
        return found + [None] * (len(drafts) + 1 - len(found))

    def allows(self, token_id: int) -> bool:
        """Whether the answer can still be closed in time behind a token that its mask has."""
        if self._position is None or token_id in self._vocabulary.eos_ids:
            return True
        return self._ahead(token_id).fits

    def only(self) -> Mask:
        """What is left to draw where a token was not allowed."""
        first = self._first()
        ends = self._vocabulary.eos_ids
        return _bits(ends if first is None else (first,), self._vocabulary)

    def take(self, token_id: int) -> None:
        """The answer's next token."""
        if self._thinking is not None:
            self._thinking = self._thinking.after(token_id)
        if self._matcher is None or self._ended:
            return
        if token_id in self._vocabulary.eos_ids and self._matcher.is_whole:
            self._ended = True
            return
        self._matcher.consume(token_id)
        if self._position is not None:
            ahead = self._ahead(token_id)
            self._position, self._plan = ahead.position, ahead.plan
            self._tried = None
        self._left -= 1

    def _mask(self, thinking: ThinkingBudget | None) -> Mask | None:
        forced = thinking.forced if thinking is not None else None
        if forced is not None:
            return _bits((forced,), self._vocabulary)
        if self._matcher is None:
            return None
        mask = np.empty(self._vocabulary.words, np.int32)
        self._matcher.mask(mask)
        return mask

    def _ahead(self, token_id: int) -> _Ahead:
        """Behind a token; remembered, as one is looked at and then taken."""
        if self._tried is None or self._tried[0] != token_id:
            self._tried = token_id, self._look(token_id)
        return self._tried[1]

    def _look(self, token_id: int) -> _Ahead:
        assert self._completion is not None and self._position is not None
        position, left = self._completion.push(self._position, token_id), self._left - 1
        if position is None:  # there were too many ways to read it: it is not closed in time
            return _Ahead(None, None, True)
        if position.cost <= left or self._completion.shortest(position).counts[0] <= left:
            return _Ahead(position, None, True)
        if token_id != self._first():
            return _Ahead(position, None, False)
        plan = self._completion.tokens(self._position) if self._plan is None else self._plan
        return _Ahead(position, plan[1:], True)

    def _first(self) -> int | None:
        """The next token of what completes the answer in the tokens that are left; None where it
        is whole."""
        assert self._completion is not None and self._position is not None
        if self._plan is None:
            return self._completion.shortest(self._position).first
        return self._plan[0] if self._plan else None


class _Ahead(NamedTuple):
    position: Position | None
    plan: list[int] | None
    fits: bool


def _bits(token_ids: Iterable[int], vocabulary: Vocabulary) -> Mask:
    mask = np.zeros(vocabulary.words, np.uint32)
    for token_id in token_ids:
        mask[token_id // 32] |= np.uint32(1 << token_id % 32)
    return mask.view(np.int32)
