"""Random texts of a grammar, which end: beyond a budget the shortest way out is taken."""

from __future__ import annotations

import random
from collections.abc import Mapping

from octavo.grammar.json_schema.language import is_empty
from octavo.grammar.regex import NOTHING, Regex
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq

ENDLESS = 10**9


class Sampler:
    """
    Args:
        budget: lexemes after which a text is led to its end.
        longest: bytes after which a lexeme is.
    """

    def __init__(self, grammar: Grammar, budget: int = 60, longest: int = 12) -> None:
        self._grammar = grammar
        self._budget = budget
        self._longest = longest
        self._least = _least_lexemes(grammar)
        self._alive: dict[Regex, bool] = {}
        self._edges: dict[Regex, list[tuple[int, int, Regex]]] = {}

    def text(self, rng: random.Random) -> bytes:
        written = b""
        waiting = [self._grammar.start]
        lexemes = 0
        while waiting:
            node = waiting.pop()
            if isinstance(node, Lexeme):
                written += self._lexeme(node.regex, rng)
                lexemes += 1
            elif isinstance(node, Seq):
                waiting.extend(reversed(node.nodes))
            elif isinstance(node, Ref):
                waiting.append(self._grammar.rules[node.name])
            elif isinstance(node, Choice):
                waiting.append(self._chosen(node, rng, lexemes > self._budget))
            elif isinstance(node, Repeat):
                more = 0 if lexemes > self._budget else rng.randrange(4)
                times = node.least + more
                waiting.extend(
                    [node.node] * min(times, ENDLESS if node.most is None else node.most)
                )
            else:
                raise AssertionError(f"{node} has no text")
        return written

    def _chosen(self, node: Choice, rng: random.Random, hurry: bool) -> Node:
        if hurry:
            return min(node.nodes, key=lambda one: least(one, self._least))
        return rng.choice(node.nodes)

    def _lexeme(self, regex: Regex, rng: random.Random) -> bytes:
        written = bytearray()
        while not (regex.nullable and (len(written) > self._longest or rng.random() < 0.2)):
            edges = self._live(regex)
            if not edges:
                break
            if len(written) > self._longest:
                written += _shortest(regex)
                break
            low, high, regex = rng.choice(edges)
            written.append(rng.randint(low, high))
        return bytes(written)

    def _live(self, regex: Regex) -> list[tuple[int, int, Regex]]:
        if regex not in self._edges:
            starts = regex.representatives
            steps = [
                (low, end - 1, regex.derivative(low))
                for low, end in zip(starts, [*starts[1:], 256], strict=True)
            ]
            self._edges[regex] = [step for step in steps if self._is_live(step[2])]
        return self._edges[regex]

    def _is_live(self, regex: Regex) -> bool:
        if regex not in self._alive:
            self._alive[regex] = not is_empty(regex)
        return self._alive[regex]


def least(node: Node, rules: Mapping[str, int]) -> int:
    """Lexemes that a node derives at least, and the depth of rules."""
    if isinstance(node, Ref):
        return 1 + rules.get(node.name, ENDLESS)
    if isinstance(node, Seq):
        return sum(least(part, rules) for part in node.nodes)
    if isinstance(node, Choice):
        return min((least(part, rules) for part in node.nodes), default=ENDLESS)
    if isinstance(node, Repeat):
        return node.least * least(node.node, rules) if node.least else 0
    return 1


def _least_lexemes(grammar: Grammar) -> dict[str, int]:
    known: dict[str, int] = {}
    while True:
        found = {name: least(node, known) for name, node in grammar.rules.items()}
        if found == known:
            return known
        known = found


def _shortest(regex: Regex) -> bytes:
    seen, waiting = {regex}, [(regex, b"")]
    for state, written in waiting:
        if state.nullable:
            return written
        for byte in state.representatives:
            after = state.derivative(byte)
            if after not in seen and after != NOTHING:
                seen.add(after)
                waiting.append((after, written + bytes((byte,))))
    raise AssertionError("nothing matches")
