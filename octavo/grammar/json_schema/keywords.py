"""Reading a keyword's value as what it must be."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from octavo.grammar.json_schema.documents import Place

LARGEST = 10**1000


def schema_map(place: Place, keyword: str) -> dict[str, Place]:
    """Schemas by name."""
    value = place.schema.get(keyword, {})
    if not isinstance(value, Mapping):
        raise place.error(f"{keyword} must be an object of schemas")
    return {name: place.child(keyword, name) for name in value}


def schema_list(place: Place, keyword: str) -> list[Place]:
    value = place.schema.get(keyword, [])
    if not isinstance(value, list) or (keyword in place.schema and not value):
        raise place.error(f"{keyword} must be a list of schemas that is not empty")
    return [place.child(keyword, i) for i in range(len(value))]


def schema(place: Place, keyword: str) -> Place | None:
    return place.child(keyword) if keyword in place.schema else None


def count(place: Place, keyword: str) -> int | None:
    """A number from 0 on, without a fraction."""
    if keyword not in place.schema:
        return None
    value = number(place, keyword)
    if value is None or value < 0 or value.denominator != 1:
        raise place.error(f"{keyword} must be a whole number from 0 on")
    return int(value)


def number(place: Place, keyword: str) -> Fraction | None:
    if keyword not in place.schema:
        return None
    value = exact(place.schema[keyword])
    if value is None:
        raise place.error(f"{keyword} must be a number")
    return value


def exact(value: Any) -> Fraction | None:
    """A number as JSON writes it: 0.1 is a tenth. None: it is no finite number, or a huge one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
        return None
    try:
        return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    except ValueError:
        return None


def names(place: Place, keyword: str) -> list[str]:
    """Names, each once."""
    return name_list(place, keyword, place.schema.get(keyword, []))


def name_list(place: Place, keyword: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise place.error(f"{keyword} must be a list of names")
    return list(dict.fromkeys(value))


def flag(place: Place, keyword: str) -> bool:
    value = place.schema.get(keyword, False)
    if not isinstance(value, bool):
        raise place.error(f"{keyword} must be true or false")
    return value
