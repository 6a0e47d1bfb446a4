"""Arrays as rules: leading items one by one, then the rest.

Where items must be counted (`contains`), what may follow depends on how many were written and on
the counts, up to caps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import product
from typing import TYPE_CHECKING

from octavo.grammar.json_schema.constants import listed_values
from octavo.grammar.json_schema.expressions import FALSE, Constant, Expr, all_of, negated
from octavo.grammar.json_schema.nodes import choice, repeat, seq
from octavo.grammar.json_schema.shapes import ArrayShape, Counter
from octavo.grammar.regex import concat, text
from octavo.grammar.rules import Node

if TYPE_CHECKING:
    from octavo.grammar.json_schema.writer import Writer

MAX_VALUES = 8  # of items that must differ
MAX_STATES = 1000  # of an array whose items are counted
Counts = tuple[int, ...]


def write_array(writer: Writer, shape: ArrayShape, key: Hashable) -> Node:
    """All arrays of this shape; `key` tells its rules from others."""
    if shape.unique and _longest(shape) != 1:
        return _Unique(writer, shape, key).node()
    return _Array(writer, shape, key).node()


def _before(writer: Writer, index: int) -> Node:
    return writer.lexeme(writer.comma if index else writer.opening("["))


def _end(writer: Writer, index: int) -> Node:
    return writer.lexeme(writer.closing("]") if index else concat(writer.opening("["), text("]")))


def _longest(shape: ArrayShape) -> int | None:
    """Items that there may be at most."""
    limits = [i for i in range(len(shape.prefix) + 1) if shape.item(i) == FALSE]
    return min([*limits[:1], *([] if shape.most is None else [shape.most])], default=None)


class _Array:
    def __init__(self, writer: Writer, shape: ArrayShape, key: Hashable) -> None:
        self._writer = writer
        self._shape = shape
        self._key = key
        self._most = _longest(shape)
        # Items behind this index are all alike but for their counts.
        starts = [counter.start for counter in shape.counters]
        self._alike = max(1, len(shape.prefix), *starts)
        if shape.counters:
            self._alike = max(self._alike, shape.least, self._most or 0)
        states = self._alike + 1
        for counter in shape.counters:
            states *= max(counter.least, counter.most or 0) + 2
        if states > MAX_STATES and shape.counters:
            raise writer.error(f"contains: an array would need {states} states")

    def node(self) -> Node:
        """From the opening bracket on."""
        return self._from(0, (0,) * len(self._shape.counters))

    def _from(self, index: int, counts: Counts) -> Node:
        """From the item at `index` on."""
        shape = self._shape
        if index == self._alike and all(map(_settled, shape.counters, counts)):
            return self._rest(index)
        ways = [_end(self._writer, index)] if self._may_end(index, counts) else []
        if self._most is None or index < self._most:
            for expr, after in self._items(index, counts):
                item = seq(_before(self._writer, index), self._writer.value(expr))
                ways.append(seq(item, self._next(index, after)))
        return choice(ways)

    def _next(self, index: int, counts: Counts) -> Node:
        after = min(index + 1, self._alike)
        if not counts and after == self._alike:
            return self._rest(after)
        return self._writer.rule((self._key, after, counts), lambda: self._from(after, counts))

    def _rest(self, index: int) -> Node:
        """Any items that are left, without counting."""
        shape = self._shape
        item = seq(_before(self._writer, index), self._writer.value(shape.rest))
        left = None if self._most is None else self._most - index
        return seq(repeat(item, max(shape.least - index, 0), left), _end(self._writer, index))

    def _items(self, index: int, counts: Counts) -> Iterator[tuple[Expr, Counts]]:
        """What the next item may be, and the counts then."""
        item = self._shape.item(index)
        choices = [
            list(_counted(counter, count)) if counter.start <= index else [(item, count)]
            for counter, count in zip(self._shape.counters, counts, strict=True)
        ]
        for chosen in product(*choices):
            expr = all_of(item, *(expr for expr, _ in chosen))
            if expr != FALSE:
                yield expr, tuple(count for _, count in chosen)

    def _may_end(self, index: int, counts: Counts) -> bool:
        pairs = zip(self._shape.counters, counts, strict=True)
        enough = all(c >= counter.least for counter, c in pairs)
        return index >= self._shape.least and enough


def _settled(counter: Counter, count: int) -> bool:
    """Whether no item matters any more."""
    return counter.most is None and count >= counter.least


def _counted(counter: Counter, count: int) -> Iterator[tuple[Expr, int]]:
    """What an item may be: one that counts, or one that does not."""
    if _settled(counter, count):
        yield all_of(), count
        return
    if counter.most is None or count < counter.most:
        yield counter.expr, count + 1
    # Without an upper bound, one that counts may as well go uncounted.
    yield (all_of() if counter.most is None else negated(counter.expr)), count


class _Unique:
    """An array whose items are of few values, none twice: what may follow depends on those that
    were written."""

    def __init__(self, writer: Writer, shape: ArrayShape, key: Hashable) -> None:
        if shape.counters:
            raise writer.error("uniqueItems beside contains is not supported")
        self._writer = writer
        self._shape = shape
        self._key = key
        self._most = _longest(shape)

    def node(self) -> Node:
        return self._from(frozenset())

    def _from(self, used: frozenset[Constant]) -> Node:
        index = len(used)
        ways = [_end(self._writer, index)] if index >= self._shape.least else []
        if self._most is None or index < self._most:
            for value in self._values(index):
                if value not in used:
                    ways.append(self._with(used, value))
        return choice(ways)

    def _with(self, used: frozenset[Constant], value: Constant) -> Node:
        item = seq(_before(self._writer, len(used)), self._writer.value(value))
        after = used | {value}
        return seq(item, self._writer.rule((self._key, after), lambda: self._from(after)))

    def _values(self, index: int) -> list[Constant]:
        values = listed_values(self._writer.meaning.of(self._shape.item(index)), MAX_VALUES)
        if values is None:
            raise self._writer.error(
                f"uniqueItems needs items that are of at most {MAX_VALUES} simple values"
            )
        return values
