"""What a schema means: the set of values it allows, keyword by keyword."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import ClassVar

from octavo.grammar.json_schema import keywords, strings
from octavo.grammar.json_schema.assertions import Assertions
from octavo.grammar.json_schema.constants import listed
from octavo.grammar.json_schema.documents import Documents, Place, Scope
from octavo.grammar.json_schema.errors import SchemaError
from octavo.grammar.json_schema.expressions import (
    FALSE,
    TRUE,
    All,
    Constant,
    Expr,
    Not,
    Schema,
    any_of,
    place_of,
)
from octavo.grammar.json_schema.language import is_empty
from octavo.grammar.json_schema.shapes import (
    EVERYTHING,
    NO_VALUE,
    ArrayShape,
    ObjectShape,
    Shapes,
    TooManyShapes,
)
from octavo.grammar.regex import ANY_TEXT, NOTHING

MAX_IN_PLACE = 64  # schemas that apply to one value, one within the other
MAX_BRANCHES = 6  # of anyOf beside unevaluatedItems or unevaluatedProperties
_OLD = {
    "dependencies": "dependentRequired or dependentSchemas",
    "additionalItems": "prefixItems and items",
    "$recursiveRef": "$dynamicRef",
}
_DRAFTS = "json-schema.org/"


class _Circle(SchemaError):
    """A schema applies to a value before it is known what it means."""


class Meaning:
    """Sets of values by expression, each found once."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._known: dict[Expr, Shapes] = {}
        self._open: dict[Schema, None] = {}  # being looked into

    def of(self, expr: Expr) -> Shapes:
        """The values in `expr`.

        Raises:
            SchemaError: a keyword is wrong or cannot be said.
        """
        if expr not in self._known:
            with _within(expr):
                self._known[expr] = self._found(expr)
        return self._known[expr]

    def at(self, place: Place, scope: Scope = ()) -> Expr:
        """The expression of the schema at a place."""
        if place.schema is True or place.schema == {}:
            return TRUE
        if place.schema is False:
            return FALSE
        return Schema(place, self._documents.entered(place, scope))

    def _possible(self, expr: Expr, depth: int) -> bool:
        """False only if no value is in `expr`, as far as `depth` levels tell."""
        try:
            return self._any(self.of(expr), depth)
        except _Circle:  # it is being looked into
            return True

    def _any(self, shapes: Shapes, depth: int = 2) -> bool:
        return bool(
            shapes.constants
            or not is_empty(shapes.numbers)
            or not is_empty(shapes.strings)
            or any(self._possible_array(shape, depth - 1) for shape in shapes.arrays)
            or any(self._possible_object(shape, depth - 1) for shape in shapes.objects)
        )

    def _possible_array(self, shape: ArrayShape, depth: int) -> bool:
        items = [shape.item(i) for i in range(min(shape.least, len(shape.prefix) + 1))]
        return depth < 0 or all(self._possible(item, depth) for item in items)

    def _possible_object(self, shape: ObjectShape, depth: int) -> bool:
        values = dict(shape.named)
        return depth < 0 or all(self._possible(values[name], depth) for name in shape.required)

    def _found(self, expr: Expr) -> Shapes:
        if isinstance(expr, Schema):
            return self._schema(expr, False)
        if isinstance(expr, Constant):
            return listed([expr])
        if isinstance(expr, Not):
            return self.of(expr.part).others()
        parts = [self.of(part) for part in expr.parts]
        if isinstance(expr, All):
            return reduce(Shapes.meet, parts, EVERYTHING)
        return reduce(Shapes.join, parts, NO_VALUE)

    def _in_place(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        """A schema that applies to the same value; `seen`: with what its keywords look at."""
        expr = self.at(place, scope)
        if not seen or not isinstance(expr, Schema):
            return self.of(expr)
        return self._schema(expr, True)

    def _schema(self, expr: Schema, seen: bool) -> Shapes:
        place = expr.place
        if not isinstance(place.schema, dict):
            raise place.error("a schema must be an object, true or false")
        if expr in self._open or len(self._open) >= MAX_IN_PLACE:
            problem = f"$ref: more than {MAX_IN_PLACE} schemas in one another, or a circle"
            raise _Circle(place.pointer, problem)
        self._open[expr] = None
        try:
            return self._keywords(place, expr.scope, seen)
        finally:
            del self._open[expr]

    def _keywords(self, place: Place, scope: Scope, outer: bool) -> Shapes:
        self._check(place)
        unevaluated = [
            k for k in ("unevaluatedItems", "unevaluatedProperties") if k in place.schema
        ]
        seen = outer or bool(unevaluated)
        found = Assertions(place, lambda child: self.at(child, scope), seen).shapes()
        for keyword, apply in self._applicators.items():
            if keyword in place.schema:
                with _keyword(place, keyword):
                    found = self._thinned(found.meet(apply(self, place, scope, seen)))
        for keyword in unevaluated:
            with _keyword(place, keyword):
                rest = self.at(place.child(keyword), scope)
                found = _UNEVALUATED[keyword](found, rest)
        return found if outer or not unevaluated else _unseen(found)

    def _check(self, place: Place) -> None:
        for keyword, instead in _OLD.items():
            if keyword in place.schema:
                raise place.error(f"{keyword} is of an older draft; write {instead}")
        draft = place.schema.get("$schema", _DRAFTS)
        if not isinstance(draft, str) or _DRAFTS not in draft:
            raise place.error("$schema: only drafts of json-schema.org are known")

    def _thinned(self, shapes: Shapes) -> Shapes:
        """Without shapes that nothing has, where there are several."""
        if len(shapes.objects) > 1:
            possible = tuple(s for s in shapes.objects if self._possible_object(s, 1))
            shapes = replace(shapes, objects=possible)
        return shapes

    def _ref(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        return self._in_place(self._documents.resolve(place, "$ref"), scope, seen)

    def _dynamic_ref(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        return self._in_place(self._documents.resolve_dynamic(place, scope), scope, seen)

    def _all_of(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        parts = keywords.schema_list(place, "allOf")
        return reduce(Shapes.meet, (self._in_place(part, scope, seen) for part in parts))

    def _any_of(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        """With what is seen: any number of them at once, as they then have seen more together."""
        places = keywords.schema_list(place, "anyOf")
        parts = [self._in_place(part, scope, seen) for part in places]
        if not seen:
            return reduce(Shapes.join, parts)
        if len(parts) > MAX_BRANCHES:
            raise place.error(f"anyOf: at most {MAX_BRANCHES} schemas beside unevaluated ones")
        sizes = range(1, len(parts) + 1)
        groups = (group for size in sizes for group in combinations(parts, size))
        return reduce(Shapes.join, (reduce(Shapes.meet, group) for group in groups))

    def _one_of(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        places = keywords.schema_list(place, "oneOf")
        parts = [self._in_place(part, scope, seen) for part in places]
        found = NO_VALUE
        for i, part in enumerate(parts):
            for other in parts[:i] + parts[i + 1 :]:
                if self._any(part.meet(other)):
                    part = self._thinned(part.meet(other.others()))
            found = found.join(part)
        return found

    def _not(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        return self._in_place(place.child("not"), scope, False).others()

    def _if(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        if not seen and "then" not in place.schema and "else" not in place.schema:
            return EVERYTHING
        condition = self._in_place(place.child("if"), scope, seen)
        branches = [
            self._in_place(place.child(key), scope, seen) if key in place.schema else EVERYTHING
            for key in ("then", "else")
        ]
        return condition.meet(branches[0]).join(condition.others().meet(branches[1]))

    def _dependent_schemas(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        found = EVERYTHING
        for name, part in keywords.schema_map(place, "dependentSchemas").items():
            found = found.meet(_dependent(name, self._in_place(part, scope, seen)))
        return found

    def _dependent_required(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        entries = place.schema["dependentRequired"]
        if not isinstance(entries, dict):
            raise place.error("dependentRequired must be an object of lists of names")
        found = EVERYTHING
        for name, value in entries.items():
            needed = keywords.name_list(place, "dependentRequired", value)
            shape = ObjectShape(tuple((n, TRUE) for n in needed), required=tuple(needed))
            found = found.meet(_dependent(name, Shapes(objects=(shape,))))
        return found

    def _property_names(self, place: Place, scope: Scope, seen: bool) -> Shapes:
        names = self.of(self.at(place.child("propertyNames"), scope)).strings
        shape = ObjectShape(regions=((strings.not_in(names), FALSE),))
        return replace(EVERYTHING, objects=(shape,))

    _applicators: ClassVar[dict[str, Callable[[Meaning, Place, Scope, bool], Shapes]]] = {
        "$ref": _ref,
        "$dynamicRef": _dynamic_ref,
        "allOf": _all_of,
        "dependentRequired": _dependent_required,
        "dependentSchemas": _dependent_schemas,
        "propertyNames": _property_names,
        "if": _if,
        "anyOf": _any_of,
        "oneOf": _one_of,
        "not": _not,
    }


def _dependent(name: str, then: Shapes) -> Shapes:
    """Objects without a member `name`, or that are in `then`; and all that are no objects."""
    without = ObjectShape(((name, FALSE),))
    having = ObjectShape(((name, TRUE),), required=(name,))
    return replace(EVERYTHING, objects=(without, *(having.meet(s) for s in then.objects)))


def _unevaluated_items(found: Shapes, rest: Expr) -> Shapes:
    def limited(shape: ArrayShape) -> ArrayShape:
        unseen = ArrayShape((TRUE,) * shape.seen, any_of(shape.seen_where, rest))
        return replace(shape.meet(unseen), seen_where=TRUE)

    return found.map_arrays(limited)


def _unevaluated_properties(found: Shapes, rest: Expr) -> Shapes:
    def limited(shape: ObjectShape) -> ObjectShape:
        unseen = ObjectShape(regions=((strings.not_in(shape.seen), rest),))
        return replace(shape.meet(unseen), seen=ANY_TEXT)

    return found.map_objects(limited)


_UNEVALUATED = {
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
}


def _unseen(found: Shapes) -> Shapes:
    arrays = found.map_arrays(lambda shape: replace(shape, seen=0, seen_where=FALSE))
    return arrays.map_objects(lambda shape: replace(shape, seen=NOTHING))


@contextmanager
def _keyword(place: Place, keyword: str) -> Iterator[None]:
    """Says which keyword it was that needs too many shapes."""
    try:
        yield
    except TooManyShapes:
        raise place.error(f"{keyword} has too many cases") from None


@contextmanager
def _within(expr: Expr) -> Iterator[None]:
    """The same for what several schemas say together."""
    try:
        yield
    except TooManyShapes:
        place = place_of(expr)
        if place is None:
            raise
        raise place.error("allOf, anyOf or not: too many cases together") from None
