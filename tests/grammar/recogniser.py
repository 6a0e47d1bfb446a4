"""Whether a grammar derives a text: by brute force, character by character, as a twin for others.

Every node is asked for all places where what it derives may end. A rule that meets itself at one
place is asked again until it has no more ends to tell.
"""

from __future__ import annotations

from octavo.grammar.regex import NOTHING, Regex
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq

Ends = frozenset[int]


def accepts(grammar: Grammar, data: bytes) -> bool:
    """Whether `data` is a whole text of the grammar. Token lexemes derive no text."""
    return len(data) in _Recogniser(grammar, data).ends(grammar.start, 0)


class _Recogniser:
    def __init__(self, grammar: Grammar, data: bytes) -> None:
        self._rules = grammar.rules
        self._data = data
        self._known: dict[tuple[str, int], Ends] = {}
        self._open: dict[
            tuple[str, int], Ends
        ] = {}  # rules being asked, with what they told so far
        self._unfinished = set[tuple[str, int]]()  # open rules that were asked meanwhile
        self._lexemes: dict[tuple[Regex, int], Ends] = {}

    def ends(self, node: Node, at: int) -> Ends:
        if isinstance(node, Lexeme):
            return self._lexeme(node.regex, at)
        if isinstance(node, Seq):
            places = frozenset((at,))
            for part in node.nodes:
                places = self._after(part, places)
            return places
        if isinstance(node, Choice):
            return frozenset[int]().union(*(self.ends(part, at) for part in node.nodes))
        if isinstance(node, Repeat):
            return self._repeat(node, at)
        return self._rule(node.name, at) if isinstance(node, Ref) else frozenset()

    def _after(self, node: Node, places: Ends) -> Ends:
        return frozenset[int]().union(*(self.ends(node, place) for place in places))

    def _lexeme(self, regex: Regex, at: int) -> Ends:
        if (regex, at) not in self._lexemes:
            found, left, end = [at] if regex.nullable else [], regex, at
            while end < len(self._data) and left != NOTHING:
                left = left.derivative(self._data[end])
                end += 1
                if left.nullable:
                    found.append(end)
            self._lexemes[regex, at] = frozenset(found)
        return self._lexemes[regex, at]

    def _repeat(self, node: Repeat, at: int) -> Ends:
        places, found, times = frozenset((at,)), frozenset[int](), 0
        while places and (node.most is None or times <= node.most):
            new = places - found if times >= node.least else places
            if times >= node.least:
                if not new:
                    break
                found |= new
            places, times = self._after(node.node, new), times + 1
        return found

    def _rule(self, name: str, at: int) -> Ends:
        key = (name, at)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            self._unfinished.add(key)
            return self._open[key]
        self._open[key] = frozenset()
        while (found := self.ends(self._rules[name], at)) != self._open[key]:
            self._open[key] = found
        del self._open[key]
        self._unfinished.discard(key)
        if not self._unfinished:  # else it may know less than there is
            self._known[key] = found
        return found
