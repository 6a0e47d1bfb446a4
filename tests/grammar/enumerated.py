"""All short sentences of a grammar, by taking its definitions at their word."""

from __future__ import annotations

from octavo.grammar.regex import Kind, Regex
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq

Sentences = frozenset[bytes]


def sentences(grammar: Grammar, longest: int) -> Sentences:
    """Those of at most `longest` bytes; `grammar` has no token lexemes."""
    rules: dict[str, Sentences] = dict.fromkeys(grammar.rules, frozenset())
    while True:
        again = {name: _of(node, rules, longest) for name, node in grammar.rules.items()}
        if again == rules:
            return _of(grammar.start, rules, longest)
        rules = again


def _of(node: Node, rules: dict[str, Sentences], longest: int) -> Sentences:
    if isinstance(node, Lexeme):
        return frozenset(_matched(node.regex, longest))
    if isinstance(node, Ref):
        return rules[node.name]
    if isinstance(node, Choice):
        return frozenset[bytes]().union(*(_of(child, rules, longest) for child in node.nodes))
    if isinstance(node, Seq):
        found = frozenset([b""])
        for child in node.nodes:
            found = _joined(found, _of(child, rules, longest), longest)
        return found
    assert isinstance(node, Repeat)
    once = _of(node.node, rules, longest)
    found, last = frozenset[bytes](), frozenset([b""])
    for count in range(longest + node.least + 1 if node.most is None else node.most + 1):
        found |= last if count >= node.least else frozenset()
        last = _joined(last, once, longest)
    return found


def _joined(first: Sentences, second: Sentences, longest: int) -> Sentences:
    return frozenset(a + b for a in first for b in second if len(a + b) <= longest)


def _matched(regex: Regex, longest: int) -> list[bytes]:
    found, begun = [], [(b"", regex)]
    while begun:
        text, left = begun.pop()
        if left.nullable:
            found.append(text)
        for byte in b"abcd" if len(text) < longest else b"":
            after = left.derivative(byte)
            if after.kind != Kind.NOTHING:
                begun.append((text + bytes((byte,)), after))
    return found
