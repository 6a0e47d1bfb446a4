"""Definitions that are one regular expression each, however they refer to each other."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.base.errors import RequestError
from octavo.grammar.classes import fold
from octavo.grammar.pattern import parse_pattern
from octavo.grammar.regex import Regex, both, chars, complement, concat, repeat, union
from octavo.grammar.regex import text as text_of
from octavo.grammar.syntax import (
    Both,
    Definition,
    Either,
    Name,
    Not,
    Pattern,
    Sequence,
    Source,
    Span,
    Text,
    Times,
    Tree,
)

MAX_CHAIN = 64  # definitions that are needed for one another


class Terminals:
    """Raises RequestError with the place where something is undefined, refers to itself, or is
    not text."""

    def __init__(self, source: Source, definitions: Mapping[str, Definition]) -> None:
        self._source = source
        self._definitions = definitions
        self._known: dict[str, Regex] = {}
        self._open: list[str] = []

    def of(self, tree: Tree) -> Regex:
        """The texts that a tree describes."""
        if isinstance(tree, Text):
            return any_case(tree.value) if tree.any_case else text_of(tree.value)
        if isinstance(tree, Span):
            return chars(((ord(tree.low), ord(tree.high)),))
        if isinstance(tree, Pattern):
            return self._pattern(tree)
        if isinstance(tree, Name):
            return self._named(tree)
        if isinstance(tree, Sequence):
            return concat(*map(self.of, tree.parts))
        if isinstance(tree, Either):
            return union(*map(self.of, tree.parts))
        if isinstance(tree, Both):
            return both(*map(self.of, tree.parts))
        if isinstance(tree, Not):
            return complement(self.of(tree.part))
        if isinstance(tree, Times):
            return repeat(self.of(tree.part), tree.least, tree.most)
        raise RequestError("grammar: a terminal is made of text only, not of tokens", "grammar")

    def _named(self, name: Name) -> Regex:
        if name.name in self._known:
            return self._known[name.name]
        if name.name not in self._definitions:
            raise self._source.wrong(f"{name.name} is no terminal that is defined", name.at)
        if name.name in self._open:
            cycle = " -> ".join([*self._open[self._open.index(name.name) :], name.name])
            raise self._source.wrong(f"a terminal refers to itself: {cycle}", name.at)
        if len(self._open) >= MAX_CHAIN:
            raise self._source.wrong(f"more than {MAX_CHAIN} terminals in terminals", name.at)
        self._open.append(name.name)
        self._known[name.name] = self.of(self._definitions[name.name].body)
        self._open.pop()
        return self._known[name.name]

    def _pattern(self, pattern: Pattern) -> Regex:
        try:
            return parse_pattern(pattern.source, anchored=True, flags=pattern.flags)
        except RequestError as error:
            raise self._source.wrong(str(error), pattern.at) from error


def any_case(value: str) -> Regex:
    """A text, each of its letters in any case."""
    return concat(*(chars(fold(((ord(c), ord(c)),))) for c in value))
