"""Checks of what a client sent: each refuses a value with a message that names field and limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from octavo.base.errors import RequestError


def integer(field: str, value: object, low: int, high: int | None = None) -> None:
    bound = f"at least {low}" if high is None else f"between {low} and {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{field} must be an integer {bound}, got {value!r}", field)
    if value < low or (high is not None and value > high):
        raise RequestError(f"{field} must be {bound}, got {value}", field)


def number(field: str, value: object, low: float, high: float, above_low: bool = False) -> None:
    bound = f"above {low:g} and at most {high:g}" if above_low else f"between {low:g} and {high:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise RequestError(f"{field} must be a number {bound}, got {value!r}", field)
    if value < low or value > high or (above_low and value == low):
        raise RequestError(f"{field} must be {bound}, got {value!r}", field)


def flag(field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise RequestError(f"{field} must be true or false, got {value!r}", field)


def choice(field: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise RequestError(f"{field} must be {' or '.join(choices)}, got {value!r}", field)


def items(field: str, value: object, most: int | None = None) -> None:
    """`value` is a list, of at most so many entries."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise RequestError(f"{field} must be a list, got {value!r}", field)
    if most is not None and len(value) > most:
        raise RequestError(f"{field} has {len(value)} entries; at most {most}", field)


def token_ids(field: str, value: object, most: int | None = None) -> None:
    items(field, value, most)
    assert isinstance(value, Sequence)
    for token in value:
        integer(field, token, 0)


def texts(field: str, value: object, most: int, longest: int) -> None:
    """`value` is a list of texts, none of them empty; `longest` in characters."""
    items(field, value, most)
    assert isinstance(value, Sequence)
    for text in value:
        if not isinstance(text, str) or not 1 <= len(text) <= longest:
            raise RequestError(f"{field} must be texts of 1 to {longest} characters", field)
