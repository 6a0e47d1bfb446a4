"""Sets of JSON values, and how they are met, joined and turned round.

Values inside of arrays and objects are kept as expressions and looked into only when a grammar is
written, so that schemas may refer to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from octavo.grammar.json_schema import numbers, strings
from octavo.grammar.json_schema.expressions import FALSE, TRUE, Expr, all_of, any_of, negated
from octavo.grammar.json_schema.language import any_text_of
from octavo.grammar.regex import ANY_TEXT, NOTHING, Regex, both, union


@dataclass(frozen=True, slots=True)
class Counter:
    """How many items from index `start` on are in `expr`."""

    start: int
    expr: Expr
    least: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """Arrays for which all of this holds."""

    prefix: tuple[Expr, ...] = ()
    rest: Expr = TRUE
    least: int = 0
    most: int | None = None
    counters: tuple[Counter, ...] = ()
    unique: bool = False
    # What keywords have looked at, for unevaluatedItems: so many items, and all of these.
    seen: int = 0
    seen_where: Expr = FALSE

    def item(self, index: int) -> Expr:
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def meet(self, other: ArrayShape) -> ArrayShape:
        width = max(len(self.prefix), len(other.prefix))
        return ArrayShape(
            tuple(all_of(self.item(i), other.item(i)) for i in range(width)),
            all_of(self.rest, other.rest),
            max(self.least, other.least),
            _lower(self.most, other.most),
            tuple(dict.fromkeys(self.counters + other.counters)),
            self.unique or other.unique,
            max(self.seen, other.seen),
            any_of(self.seen_where, other.seen_where),
        )

    @property
    def impossible(self) -> bool:
        return (self.most is not None and self.least > self.most) or any(
            self.item(i) == FALSE for i in range(min(self.least, len(self.prefix) + 1))
        )

    def others(self) -> Iterator[ArrayShape]:
        """What together are all other arrays."""
        for i, expr in enumerate(self.prefix):
            if expr != TRUE:
                yield ArrayShape((TRUE,) * i + (negated(expr),), least=i + 1)
        if self.rest != TRUE:
            counter = Counter(len(self.prefix), negated(self.rest), 1)
            yield ArrayShape(counters=(counter,))
        if self.least:
            yield ArrayShape(most=self.least - 1)
        if self.most is not None:
            yield ArrayShape(least=self.most + 1)
        for counter in self.counters:
            if counter.least:
                yield ArrayShape(counters=(replace(counter, least=0, most=counter.least - 1),))
            if counter.most is not None:
                more = replace(counter, least=counter.most + 1, most=None)
                yield ArrayShape(counters=(more,))


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """Objects for which all of this holds."""

    named: tuple[tuple[str, Expr], ...] = ()  # the value of a name, if it is there
    regions: tuple[tuple[Regex, Expr], ...] = ()  # values of matching names that are not in `named`
    required: tuple[str, ...] = ()  # all of them in `named`
    least: int = 0
    most: int | None = None
    some: tuple[tuple[Regex, Expr], ...] = ()  # there is a member of such a name and value
    seen: Regex = NOTHING  # names that keywords have looked at, for unevaluatedProperties

    def value(self, name: str) -> Expr:
        for known, expr in self.named:
            if known == name:
                return expr
        data = name.encode(errors="surrogatepass")
        return all_of(*(expr for names, expr in self.regions if names.matches(data)))

    def meet(self, other: ObjectShape) -> ObjectShape:
        names = dict.fromkeys(name for name, _ in self.named + other.named)
        return ObjectShape(
            tuple((name, all_of(self.value(name), other.value(name))) for name in names),
            tuple(dict.fromkeys(self.regions + other.regions)),
            tuple(dict.fromkeys(self.required + other.required)),
            max(self.least, other.least),
            _lower(self.most, other.most),
            tuple(dict.fromkeys(self.some + other.some)),
            union(self.seen, other.seen),
        )

    @property
    def impossible(self) -> bool:
        if self.most is not None and max(self.least, len(self.required)) > self.most:
            return True
        values = dict(self.named)
        return any(values[name] == FALSE for name in self.required)

    def others(self) -> Iterator[ObjectShape]:
        """What together are all other objects."""
        for name, expr in self.named:
            if expr != TRUE:
                yield ObjectShape(((name, negated(expr)),), required=(name,))
        if self.regions:
            free = strings.not_in(any_text_of([name for name, _ in self.named]))
            for names, expr in self.regions:
                if expr != TRUE:
                    yield ObjectShape(some=((both(names, free), negated(expr)),))
        for name in self.required:
            yield ObjectShape(((name, FALSE),))
        if self.least:
            yield ObjectShape(most=self.least - 1)
        if self.most is not None:
            yield ObjectShape(least=self.most + 1)
        for names, expr in self.some:
            yield ObjectShape(regions=((names, negated(expr)),))


Shape = TypeVar("Shape", ArrayShape, ObjectShape)
ALL_CONSTANTS = frozenset(("null", "true", "false"))


@dataclass(frozen=True, slots=True)
class Shapes:
    """A set of values, by type; of arrays and objects, those of any of the shapes."""

    constants: frozenset[str] = frozenset()
    numbers: Regex = NOTHING
    strings: Regex = NOTHING  # over characters, not over how JSON spells them
    arrays: tuple[ArrayShape, ...] = ()
    objects: tuple[ObjectShape, ...] = ()

    def meet(self, other: Shapes) -> Shapes:
        if self == EVERYTHING or other == EVERYTHING:
            return other if self == EVERYTHING else self
        return Shapes(
            self.constants & other.constants,
            both(self.numbers, other.numbers),
            both(self.strings, other.strings),
            _possible(a.meet(b) for a in self.arrays for b in other.arrays),
            _possible(a.meet(b) for a in self.objects for b in other.objects),
        )

    def join(self, other: Shapes) -> Shapes:
        return Shapes(
            self.constants | other.constants,
            union(self.numbers, other.numbers),
            union(self.strings, other.strings),
            tuple(dict.fromkeys(self.arrays + other.arrays)),
            tuple(dict.fromkeys(self.objects + other.objects)),
        )

    def others(self) -> Shapes:
        """All other values."""
        arrays, objects = EVERYTHING.arrays, EVERYTHING.objects
        for array in self.arrays:
            arrays = _possible(a.meet(b) for a in arrays for b in array.others())
        for shape in self.objects:
            objects = _possible(a.meet(b) for a in objects for b in shape.others())
        return Shapes(
            ALL_CONSTANTS - self.constants,
            numbers.other_than(self.numbers),
            strings.not_in(self.strings),
            arrays,
            objects,
        )

    @property
    def scalars(self) -> bool:
        """Without arrays and objects."""
        return not self.arrays and not self.objects

    def map_arrays(self, change: Callable[[ArrayShape], ArrayShape]) -> Shapes:
        return replace(self, arrays=_possible(change(shape) for shape in self.arrays))

    def map_objects(self, change: Callable[[ObjectShape], ObjectShape]) -> Shapes:
        return replace(self, objects=_possible(change(shape) for shape in self.objects))


NO_VALUE = Shapes()
EVERYTHING = Shapes(ALL_CONSTANTS, numbers.NUMBER, ANY_TEXT, (ArrayShape(),), (ObjectShape(),))
MAX_SHAPES = 256


class TooManyShapes(Exception):
    """A set needs more than `MAX_SHAPES` shapes."""


def _possible(shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    found: dict[Shape, None] = {}
    for shape in shapes:
        if not shape.impossible:
            found[shape] = None
        if len(found) > MAX_SHAPES:
            raise TooManyShapes
    return tuple(found)


def _lower(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else min(first, second)
