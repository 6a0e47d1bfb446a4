"""The automaton of a grammar's lexemes, made as it is walked, with what each state costs to end."""

from __future__ import annotations

from octavo.grammar.regex import Regex
from octavo.grammar.spelling import IMPOSSIBLE
from octavo.grammar.vocabulary import Vocabulary

MAX_KEPT = 2**16  # texts whose cost is remembered


class State:
    """What is left of a lexeme."""

    __slots__ = ("accepts", "cost", "next", "regex", "shortest")

    def __init__(self, regex: Regex, shortest: bytes, cost: int) -> None:
        self.regex = regex
        self.accepts = regex.nullable
        self.shortest = shortest  # that ends it
        self.cost = cost  # tokens of that
        self.next: dict[int, State | None] = {}  # by byte, as far as it is known; None: no way


class Automaton:
    """States of all lexemes of one grammar."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._states: dict[Regex, State | None] = {}
        self._costs: dict[bytes, int] = {}

    def state(self, regex: Regex) -> State | None:
        """None where it matches nothing.

        Raises:
            RequestError: the expression is too large to search.
        """
        if regex not in self._states:
            shortest = regex.shortest
            self._states[regex] = (
                None if shortest is None else State(regex, shortest, self._cost(shortest))
            )
        return self._states[regex]

    def after(self, state: State, byte: int) -> State | None:
        if byte not in state.next:
            state.next[byte] = self.state(state.regex.derivative(byte))
        return state.next[byte]

    def _cost(self, text: bytes) -> int:
        """The fewest tokens that spell `text`. What is left behind a byte is most often known."""
        if len(self._costs) > MAX_KEPT:
            self._costs.clear()
        costs, ids = self._costs, self._vocabulary.ids
        costs[b""] = 0
        begin = 0
        while text[begin:] not in costs:
            begin += 1
        for at in range(begin - 1, -1, -1):
            ends = range(at + 1, min(at + self._vocabulary.longest, len(text)) + 1)
            fits = (1 + costs[text[end:]] for end in ends if text[at:end] in ids)
            costs[text[at:]] = min(fits, default=IMPOSSIBLE)
        return costs[text]
