"""What a schema's keywords say by themselves of a value of each type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from octavo.base.errors import RequestError
from octavo.grammar.json_schema import formats, keywords, numbers, strings
from octavo.grammar.json_schema.constants import constant, listed
from octavo.grammar.json_schema.documents import Place
from octavo.grammar.json_schema.expressions import FALSE, TRUE, Expr, all_of
from octavo.grammar.json_schema.language import any_text_of
from octavo.grammar.json_schema.multiples import multiples, multiples_between
from octavo.grammar.json_schema.shapes import (
    EVERYTHING,
    ArrayShape,
    Counter,
    ObjectShape,
    Shapes,
)
from octavo.grammar.pattern import parse_pattern
from octavo.grammar.regex import ANY_TEXT, NOTHING, Regex, both, union

_BOUNDS = {
    "minimum": (numbers.at_least, False),
    "exclusiveMinimum": (numbers.at_least, True),
    "maximum": (numbers.at_most, False),
    "exclusiveMaximum": (numbers.at_most, True),
}
_TYPES = {
    "null": Shapes(constants=frozenset(("null",))),
    "boolean": Shapes(constants=frozenset(("true", "false"))),
    "integer": Shapes(numbers=numbers.INTEGER),
    "number": Shapes(numbers=numbers.NUMBER),
    "string": Shapes(strings=ANY_TEXT),
    "array": Shapes(arrays=EVERYTHING.arrays),
    "object": Shapes(objects=EVERYTHING.objects),
}


class Assertions:
    """One schema, without those that apply to the same value.

    Args:
        at: the expression of a schema below.
        seen: keep what `items`, `properties` and their like look at.
    """

    def __init__(self, place: Place, at: Callable[[Place], Expr], seen: bool) -> None:
        self._place = place
        self._at = at
        self._seen = seen

    def shapes(self) -> Shapes:
        types = self._types()
        found = Shapes(
            types.constants,
            self._numbers(types.numbers) if types.numbers != NOTHING else NOTHING,
            self._strings() if types.strings != NOTHING else NOTHING,
            (self._array(),) if types.arrays else (),
            (self._object(),) if types.objects else (),
        )
        for keyword in ("enum", "const"):
            if keyword in self._place.schema:
                found = found.meet(self._listed(keyword))
        return found

    def _types(self) -> Shapes:
        value = self._place.schema.get("type")
        if value is None:
            return EVERYTHING
        given = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str) and name in _TYPES for name in given):
            raise self._place.error(f"type must be of {', '.join(_TYPES)}, got {value!r}")
        found = Shapes()
        for name in given:
            found = found.join(_TYPES[name])
        return replace(found, numbers=numbers.NUMBER) if "number" in given else found

    def _listed(self, keyword: str) -> Shapes:
        value = self._place.schema[keyword]
        if keyword == "enum" and not isinstance(value, list):
            raise self._place.error("enum must be a list")
        values = value if keyword == "enum" else [value]
        return listed(constant(self._place, keyword, one) for one in values)

    def _numbers(self, found: Regex) -> Regex:
        bounds = {key: keywords.number(self._place, key) for key in _BOUNDS}
        divisor = keywords.number(self._place, "multipleOf")
        if divisor is not None:
            return both(found, self._multiples(divisor, bounds))
        return both(found, *self._within(bounds))

    def _within(self, bounds: dict[str, Fraction | None]) -> list[Regex]:
        given = [(_BOUNDS[key], bound) for key, bound in bounds.items() if bound is not None]
        return [make(bound, excluded) for (make, excluded), bound in given]

    def _multiples(self, divisor: Fraction, bounds: dict[str, Fraction | None]) -> Regex:
        if divisor <= 0:
            raise self._place.error("multipleOf must be more than 0")
        low = [b for b in (bounds["minimum"], bounds["exclusiveMinimum"]) if b is not None]
        high = [b for b in (bounds["maximum"], bounds["exclusiveMaximum"]) if b is not None]
        found = multiples_between(divisor, max(low), min(high)) if low and high else None
        if found is None:
            found = multiples(divisor)
        if found is None:
            written = self._place.schema["multipleOf"]
            raise self._place.error(f"multipleOf {written} makes too large a grammar")
        return both(found, *self._within(bounds))

    def _strings(self) -> Regex:
        place = self._place
        least, most = keywords.count(place, "minLength") or 0, keywords.count(place, "maxLength")
        found = (
            [self._pattern("pattern", place.schema["pattern"])] if "pattern" in place.schema else []
        )
        name = place.schema.get("format")
        if isinstance(name, str) and name in formats.KNOWN:
            found.append(formats.format_strings(name))
        if least or most is not None:
            found.append(strings.of_length(least, most))
        return both(*found) if found else ANY_TEXT

    def _pattern(self, keyword: str, pattern: Any) -> Regex:
        if not isinstance(pattern, str):
            raise self._place.error(f"{keyword} must be a text")
        try:
            return parse_pattern(pattern)
        except RequestError as error:
            raise self._place.error(f"{keyword}: {error}") from error

    def _array(self) -> ArrayShape:
        place = self._place
        if isinstance(place.schema.get("items"), list):
            raise place.error("items must be a schema; write a list of schemas as prefixItems")
        prefix = tuple(self._at(item) for item in keywords.schema_list(place, "prefixItems"))
        rest = self._at(place.child("items")) if "items" in place.schema else TRUE
        shape = ArrayShape(
            prefix,
            rest,
            keywords.count(place, "minItems") or 0,
            keywords.count(place, "maxItems"),
            unique=keywords.flag(place, "uniqueItems"),
        )
        if "contains" in place.schema:
            shape = replace(shape, counters=self._counters())
        return self._with_seen_items(shape) if self._seen else shape

    def _counters(self) -> tuple[Counter, ...]:
        place = self._place
        least = keywords.count(place, "minContains")
        counter = Counter(
            0,
            self._at(place.child("contains")),
            1 if least is None else least,
            keywords.count(place, "maxContains"),
        )
        return (counter,) if counter.least or counter.most is not None else ()

    def _with_seen_items(self, shape: ArrayShape) -> ArrayShape:
        where: Expr = FALSE
        if "items" in self._place.schema:
            where = TRUE
        elif "contains" in self._place.schema:
            where = self._at(self._place.child("contains"))
        return replace(shape, seen=len(shape.prefix), seen_where=where)

    def _object(self) -> ObjectShape:
        place = self._place
        patterns = [
            (self._pattern("patternProperties", pattern), self._at(child))
            for pattern, child in keywords.schema_map(place, "patternProperties").items()
        ]
        properties = keywords.schema_map(place, "properties")
        rest: Expr = TRUE
        if "additionalProperties" in place.schema:
            rest = self._at(place.child("additionalProperties"))
        required = keywords.names(place, "required")
        known = [self._at(child) for child in properties.values()]
        values = dict(zip(properties, known, strict=True)) | {
            name: rest for name in required if name not in properties
        }
        if patterns:
            values = {
                name: _value(name, expr, name in properties, patterns)
                for name, expr in values.items()
            }
        others = strings.not_in(union(*(names for names, _ in patterns)))
        return ObjectShape(
            tuple(values.items()),
            (*patterns, *(((others, rest),) if rest != TRUE else ())),
            tuple(required),
            keywords.count(place, "minProperties") or 0,
            keywords.count(place, "maxProperties"),
            seen=self._seen_names(properties, patterns) if self._seen else NOTHING,
        )

    def _seen_names(self, names: dict[str, Place], patterns: list[tuple[Regex, Expr]]) -> Regex:
        if "additionalProperties" in self._place.schema:
            return ANY_TEXT
        return union(any_text_of(list(names)), *(pattern for pattern, _ in patterns))


def _value(name: str, expr: Expr, listed: bool, patterns: list[tuple[Regex, Expr]]) -> Expr:
    """What a name's value must be: what `properties` say and each pattern that matches; `expr` is
    of `additionalProperties` where `properties` do not list it."""
    data = name.encode(errors="surrogatepass")
    matching = [value for names, value in patterns if names.matches(data)]
    return all_of(*matching, *([expr] if listed or not matching else []))
