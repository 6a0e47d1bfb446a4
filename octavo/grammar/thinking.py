"""How many tokens of reasoning an answer has, and when it must come to an end."""

from __future__ import annotations

from octavo.base.structured import Marker, Thinking
from octavo.grammar.spelling import spelled
from octavo.grammar.vocabulary import Vocabulary


class ThinkingBudget:
    """Follows the reasoning of one answer. Never changes: `after` gives what follows.

    The budget counts the tokens between the markers. Where it is used up, the tokens of the closing
    marker are all that may be written.
    """

    __slots__ = ("_closing", "_count", "_is_open", "_most", "_tail", "_thinking", "_vocabulary")

    def __init__(self, thinking: Thinking, vocabulary: Vocabulary) -> None:
        assert thinking.budget is not None
        self._thinking = thinking
        self._vocabulary = vocabulary
        self._most = thinking.budget
        self._closing = tuple(_tokens(thinking.closes, vocabulary))
        self._is_open = thinking.state == "open"
        self._count = 0
        self._tail = b""  # of the text, as far as a marker may have begun in it

    @property
    def forced(self) -> int | None:
        """The only token that may come next."""
        over = self._count - self._most
        return self._closing[over] if self._is_open and 0 <= over < len(self._closing) else None

    def after(self, token_id: int) -> ThinkingBudget:
        """Behind one more token."""
        next = ThinkingBudget.__new__(ThinkingBudget)
        next._thinking, next._vocabulary = self._thinking, self._vocabulary
        next._most, next._closing = self._most, self._closing
        text = self._tail + self._vocabulary.tokens[token_id]
        wanted = self._thinking.closes if self._is_open else self._thinking.opens
        met = _is_met(wanted, token_id, text)
        next._is_open = self._is_open != met
        next._count = self._count + (self._is_open and not met)
        next._tail = b"" if met else text[-max(0, len(wanted.text.encode()) - 1) :]
        return next


def _is_met(marker: Marker, token_id: int, text: bytes) -> bool:
    if marker.token_id is not None:
        return token_id == marker.token_id
    return marker.text.encode() in text


def _tokens(marker: Marker, vocabulary: Vocabulary) -> list[int]:
    if marker.token_id is not None:
        return [marker.token_id]
    return spelled(marker.text.encode(), vocabulary) or []
