"""Objects as rules: named members in order, then any others.

A member needs a comma if one was written before, and bounds need their number: so what may follow
depends on which name is next and on how many were written, up to a cap.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from octavo.grammar.json_schema import strings
from octavo.grammar.json_schema.expressions import FALSE, TRUE, Expr, all_of
from octavo.grammar.json_schema.language import any_text_of, bounded, is_empty, words
from octavo.grammar.json_schema.nodes import DEAD, choice, repeat, seq
from octavo.grammar.json_schema.shapes import ObjectShape
from octavo.grammar.regex import Regex, both, concat, text
from octavo.grammar.rules import Choice, Node, Seq

if TYPE_CHECKING:
    from octavo.grammar.json_schema.writer import Writer

MAX_LISTED = 64  # names that a pattern allows, to be written one by one
SHORT = 8  # parts of what is rather written twice than made a rule
MAX_CLASSES = 64  # of names that differ in what their values must be
Member = tuple[Regex, Expr]


def write_object(writer: Writer, shape: ObjectShape, key: Hashable) -> Node:
    """All objects of this shape; `key` tells its rules from others."""
    cases = [_Object(writer, *case, (key, i)) for i, case in enumerate(_settled(writer, shape))]
    return choice([case.node() for case in cases])


def _settled(writer: Writer, shape: ObjectShape) -> Iterator[tuple[ObjectShape, list[Member]]]:
    """The same objects in cases, each with the kinds of names that are not listed. In each, a
    member that there must be is listed, or is the only one of `some`."""
    shape, classes = _with_listed(writer, replace(shape, some=_needed(shape.some)))
    if not shape.some:
        yield shape, classes
        return
    (names, expr), rest = shape.some[0], shape.some[1:]
    without = replace(shape, some=rest)
    for name, value in shape.named:
        if names.matches(name.encode(errors="surrogatepass")):
            wanted = ObjectShape(((name, all_of(value, expr)),), required=(name,))
            yield from _settled(writer, without.meet(wanted))
    for others, value in classes:
        shared = both(names, others)
        if not is_empty(shared) and all_of(value, expr) != FALSE:
            if rest:
                raise writer.error("not or oneOf: several members of any name are needed")
            yield replace(shape, some=((shared, all_of(value, expr)),)), classes


def _needed(some: tuple[Member, ...]) -> tuple[Member, ...]:
    """Without members that there are anyway, if there are the others."""
    kept = list(some)
    for names, expr in some:
        others = [other for other in kept if other != (names, expr)]
        if expr == TRUE and any(_within(other, names) for other, _ in others):
            kept = others
    return tuple(kept)


def _within(names: Regex, others: Regex) -> bool:
    return is_empty(both(names, strings.not_in(others)))


def _with_listed(writer: Writer, shape: ObjectShape) -> tuple[ObjectShape, list[Member]]:
    """With names of their own where a pattern allows only few."""
    classes = _classes(writer, shape)
    listed: dict[str, Expr] = {}
    left = []
    for names, expr in classes:
        found = words(names, MAX_LISTED) if bounded(names, MAX_LISTED) else None
        listed |= dict.fromkeys(found or (), expr)
        left += [] if found else [(names, expr)]
    named = tuple((name, TRUE) for name in listed)
    return (shape.meet(ObjectShape(named)), left) if listed else (shape, classes)


def _classes(writer: Writer, shape: ObjectShape) -> list[Member]:
    """Names that are not listed, parted by what their values must be."""
    free = strings.not_in(any_text_of([name for name, _ in shape.named]))
    classes: list[Member] = [(free, TRUE)]
    for names, expr in shape.regions:
        others = strings.not_in(names)
        parted = [(both(n, names), all_of(e, expr)) for n, e in classes]
        parted += [(both(n, others), e) for n, e in classes]
        classes = [(n, e) for n, e in parted if e != FALSE and not is_empty(n)]
        if len(classes) > MAX_CLASSES:
            raise writer.error(f"patternProperties makes more than {MAX_CLASSES} kinds of names")
    return classes


class _Object:
    """An object whose members that there must be are listed, but for one at most."""

    def __init__(
        self, writer: Writer, shape: ObjectShape, others: list[Member], key: Hashable
    ) -> None:
        self._writer = writer
        self._shape = shape
        self._key = key
        required = set(shape.required)
        written = (name in required for name, _ in shape.named)
        self._required = list(accumulate(written, initial=0))  # of the names before each
        bounded = shape.least > len(required) or shape.most is not None
        self._least = shape.least if bounded else 0
        self._cap = max(1, self._least, shape.most or 0)
        self._others = others

    def node(self) -> Node:
        """From the opening brace on."""
        named = self._shape.named
        after = {count: self._free(count) for count in self._counts(len(named))}
        for i in range(len(named) - 1, -1, -1):
            if len(after) > 1:
                after = {count: self._shared(i, count, node) for count, node in after.items()}
            after = {count: self._from(i, count, after) for count in self._counts(i)}
        return after[0]

    def _counts(self, i: int) -> range:
        """How many of the first `i` names may be written, up to the cap."""
        return range(min(self._required[i], self._cap), min(i, self._cap) + 1)

    def _shared(self, i: int, count: int, node: Node) -> Node:
        if not (isinstance(node, Choice) or (isinstance(node, Seq) and len(node.nodes) > SHORT)):
            return node
        return self._writer.rule((self._key, i, count), lambda: node)

    def _from(self, i: int, count: int, after: dict[int, Node]) -> Node:
        """From the name at `i` on, when `count` members are written."""
        name, expr = self._shape.named[i]
        behind = after.get(min(count + 1, self._cap), DEAD)
        member: Node = DEAD
        if self._left(count) != 0 and expr != FALSE:
            member = seq(self._name(count, text(name)), self._writer.value(expr))
        if self._required[i] < self._required[i + 1]:
            return seq(member, behind)
        if behind == after[count]:
            return seq(repeat(member, 0, 1), behind)
        return choice([seq(member, behind), after[count]])

    def _left(self, count: int) -> int | None:
        return None if self._shape.most is None else self._shape.most - count

    def _free(self, count: int) -> Node:
        """Members that are not listed, and the closing brace."""
        least, left = max(self._least - count, 0), self._left(count)
        if least > 1 and (self._others or self._shape.some):
            problem = f"minProperties {self._least}: names that are not listed may repeat"
            raise self._writer.error(problem)
        if self._shape.some:
            return self._free_with_one(count, left)
        close = self._writer.lexeme(self._writer.closing("}"))
        if count:
            return seq(repeat(self._other(1), least, left), close)
        empty = DEAD if least else self._writer.lexeme(concat(self._writer.opening("{"), text("}")))
        if left == 0:
            return empty
        more = repeat(self._other(1), 0, None if left is None else left - 1)
        return choice([empty, seq(self._other(0), more, close)])

    def _free_with_one(self, count: int, left: int | None) -> Node:
        """The same with one of `some`, the last: so that of equal names it is what is read."""
        if left == 0:
            return DEAD
        (names, expr), close = self._shape.some[0], self._writer.closing("}")
        value = self._writer.value(expr)
        first, last = (seq(self._name(c, names), value) for c in (0, 1))
        end = seq(last, self._writer.lexeme(close))
        more = repeat(self._other(1), 0, None if left is None else left - 1)
        if count:
            return seq(more, end)
        alone = seq(first, self._writer.lexeme(close))
        if left == 1:
            return alone
        fewer = repeat(self._other(1), 0, None if left is None else left - 2)
        return choice([alone, seq(self._other(0), fewer, end)])

    def _other(self, count: int) -> Node:
        """A member that is not listed."""
        return choice(
            [seq(self._name(count, names), self._writer.value(e)) for names, e in self._others]
        )

    def _name(self, count: int, names: Regex) -> Node:
        before = self._writer.comma if count else self._writer.opening("{")
        return self._writer.name(before, names)
