"""JSON as the standard has it: no name twice in an object, no NaN, no number without a value."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

from octavo.base.errors import RequestError

MAX_NESTING = 64


def load(text: str, field: str) -> Any:
    """Raises: RequestError: `text` is not one JSON value; it names `field` and the place."""
    text = text.strip(" \t\r\n")
    value, end = decode(text, 0, field)
    if end < len(text):
        raise RequestError(f"{field} is not JSON: more behind its end (at position {end})", field)
    return value


def decode(text: str, at: int, field: str) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends. Raises as `load` does."""
    check_nesting(text, field, at)
    try:
        return _DECODER.raw_decode(text, at)
    except ValueError as error:
        raise RequestError(f"{field} is not JSON: {error}", field) from error


def check_nesting(text: str, field: str, at: int = 0) -> None:
    """One pass over brackets outside of strings, until the value that begins at `at` ends."""
    depth, quoted, escaped = 0, False, False
    for i in range(at, len(text)):
        char = text[i]
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
            if depth > MAX_NESTING:
                raise RequestError(
                    f"{field} is nested more than {MAX_NESTING} deep (at position {i})", field
                )
        elif char in "]}":
            depth -= 1
            if depth <= 0:
                return


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:80]!r} is twice in one object")
    return found


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:80]} is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_number, parse_constant=_constant
)
