"""How many tokens of reasoning an answer has, and when it must come to an end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from octavo.base.structured import Marker, Thinking
from octavo.grammar.spelling import spelled
from octavo.grammar.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """Follows the reasoning of one answer. Never changes: `after` gives what follows.

    The budget counts the tokens behind the opening marker. Where it is used up, the tokens of the
    closing marker are all that may be written. Reasoning comes first: what opens later is text.
    """

    vocabulary: Vocabulary
    most: int  # tokens
    opens: Marker
    closes: Marker
    closing: tuple[int, ...]  # tokens of that
    state: str  # as in `Thinking`; "closed" for good
    count: int = 0
    text: bytes = field(default=b"", repr=False)  # as far as a marker may have begun in it

    @classmethod
    def of(cls, thinking: Thinking, vocabulary: Vocabulary) -> ThinkingBudget | None:
        """At the beginning of an answer; None where there is no budget."""
        if thinking.budget is None:
            return None
        closing = tuple(_tokens(thinking.closes, vocabulary))
        markers = thinking.opens, thinking.closes
        return cls(vocabulary, thinking.budget, *markers, closing, thinking.state)

    @property
    def forced(self) -> int | None:
        """The only token that may come next."""
        over = self.count - self.most
        is_forced = self.state == "open" and 0 <= over < len(self.closing)
        return self.closing[over] if is_forced else None

    def after(self, token_id: int) -> ThinkingBudget:
        """Behind one more token."""
        if self.state == "closed":
            return self
        text = self.text + self.vocabulary.tokens[token_id]
        if self.state == "open":
            if _is_met(self.closes, token_id, text):
                return replace(self, state="closed")
            kept = text[-len(self.closes.text.encode()) :]
            return replace(self, count=self.count + 1, text=kept)
        if _is_met(self.opens, token_id, text):
            return replace(self, state="open", text=b"")
        begun, wanted = text.lstrip(), self.opens.text.encode()
        may_open = not begun or (self.opens.token_id is None and wanted.startswith(begun))
        return replace(self, text=text) if may_open else replace(self, state="closed")


def _is_met(marker: Marker, token_id: int, text: bytes) -> bool:
    if marker.token_id is not None:
        return token_id == marker.token_id
    return marker.text.encode() in text


def _tokens(marker: Marker, vocabulary: Vocabulary) -> list[int]:
    if marker.token_id is not None:
        return [marker.token_id]
    return spelled(marker.text.encode(), vocabulary) or []
