"""Several grammars in one: the rules of each keep apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from octavo.grammar.regex import EMPTY, Regex, concat, union
from octavo.grammar.regex import text as text_of
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq

MAX_TEXT = 64  # characters of a text that is one lexeme


class Joined:
    """Collects rules. `json` makes the grammar of a JSON Schema."""

    def __init__(self, json: Callable[[Any], Grammar]) -> None:
        self.rules: dict[str, Node] = {}
        self._json = json
        self._schemas: dict[str, Node] = {}
        self._count = 0

    def include(self, grammar: Grammar) -> Node:
        """What stands for this grammar."""
        self._count += 1
        prefix = f"{self._count}."
        for name, node in grammar.rules.items():
            self.rules[prefix + name] = _renamed(node, prefix)
        return _renamed(grammar.start, prefix)

    def json(self, schema: Any) -> Node:
        """What stands for a JSON value of this schema."""
        key = json.dumps(schema)  # members in their order: it is that of the text
        if key not in self._schemas:
            self._schemas[key] = self.include(self._json(schema))
        return self._schemas[key]


def _renamed(node: Node, prefix: str) -> Node:
    if isinstance(node, Ref):
        return Ref(prefix + node.name)
    if isinstance(node, Repeat):
        return Repeat(_renamed(node.node, prefix), node.least, node.most)
    if isinstance(node, Seq | Choice):
        return type(node)(tuple(_renamed(one, prefix) for one in node.nodes))
    return node


def lexeme(regex: Regex) -> Node:
    return Seq(()) if regex == EMPTY else Lexeme(regex)


def seq(*nodes: Node) -> Node:
    """One behind the other, without sequences in sequences."""
    flat: list[Node] = []
    for node in nodes:
        flat.extend(node.nodes if isinstance(node, Seq) else (node,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def choice(*nodes: Node) -> Node:
    return nodes[0] if len(nodes) == 1 else Choice(nodes)


def spelled(value: str) -> Node:
    """This text, in lexemes that are not too long."""
    pieces = (value[i : i + MAX_TEXT] for i in range(0, len(value), MAX_TEXT))
    return seq(*(Lexeme(text_of(piece)) for piece in pieces))


def any_of(values: Sequence[str]) -> Regex:
    """One of these texts. What they begin with alike is there once."""
    if len(values) == 1:
        return text_of(values[0])
    rests: dict[str, list[str]] = {}
    for value in values:
        rests.setdefault(value[:1], []).append(value[1:])
    ends = [EMPTY] if rests.pop("", None) else []
    return union(*ends, *(concat(text_of(c), any_of(rest)) for c, rest in rests.items()))
