"""The set that holds one value, and those that `enum` lists."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from octavo.grammar.json_schema import numbers
from octavo.grammar.json_schema.documents import Place
from octavo.grammar.json_schema.expressions import FALSE, Constant
from octavo.grammar.json_schema.keywords import exact
from octavo.grammar.json_schema.language import any_text_of, words
from octavo.grammar.json_schema.shapes import NO_VALUE, ArrayShape, ObjectShape, Shapes
from octavo.grammar.regex import ANY_TEXT, both, union


def constant(place: Place, keyword: str, value: Any) -> Constant:
    if type(value) in (int, float) and exact(value) is None:
        raise place.error(f"{keyword} has a number that is not finite, or huge")
    try:
        return Constant(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except ValueError:
        raise place.error(f"{keyword} has a number that is not finite") from None


def listed(constants: Iterable[Constant]) -> Shapes:
    """These values and no others."""
    values = [json.loads(one.text) for one in constants]
    texts = [value for value in values if isinstance(value, str)]
    shapes = Shapes(
        strings=any_text_of(texts),
        numbers=union(*(numbers.exactly(n) for value in values if (n := exact(value)) is not None)),
        arrays=tuple(_array(value) for value in values if isinstance(value, list)),
        objects=tuple(_object(value) for value in values if isinstance(value, dict)),
        constants=frozenset(json.dumps(v) for v in values if v is None or isinstance(v, bool)),
    )
    return shapes if values else NO_VALUE


def listed_values(shapes: Shapes, limit: int) -> list[Constant] | None:
    """The values, if they are at most `limit` and none an array or object."""
    if not shapes.scalars:
        return None
    strings = words(shapes.strings, limit)
    written = words(both(shapes.numbers, numbers.CANONICAL), limit)
    if strings is None or written is None:
        return None
    texts = [*sorted(shapes.constants), *written, *(json.dumps(s) for s in strings)]
    return [Constant(one) for one in texts] if len(texts) <= limit else None


def _array(value: list[Any]) -> ArrayShape:
    items = tuple(_inner(item) for item in value)
    return ArrayShape(items, FALSE, len(items), len(items))


def _object(value: dict[str, Any]) -> ObjectShape:
    named = tuple((name, _inner(inner)) for name, inner in value.items())
    return ObjectShape(named, ((ANY_TEXT, FALSE),), tuple(value))


def _inner(value: Any) -> Constant:
    return Constant(json.dumps(value, ensure_ascii=False))
