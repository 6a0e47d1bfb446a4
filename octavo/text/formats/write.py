"""Writes calls as a description says: the inverse of reading them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from octavo.text.formats.description import Calls
from octavo.text.formats.probe import PROBE_ID, Call


def write(calls: Calls, row: Sequence[Call]) -> str:
    """The text of a row of calls."""
    written = [_call(calls, index, *call) for index, call in enumerate(row)]
    return calls.opens + (calls.between or "").join(written) + calls.closes


def _call(calls: Calls, index: int, name: str, arguments: dict[str, Any]) -> str:
    fields = {
        "{name}": name,
        "{id}": PROBE_ID.format(index),
        "{index}": str(index),
        "{arguments}": _arguments(calls, arguments),
        "{call}": _json({calls.keys[0]: name, calls.keys[1]: arguments}),
    }
    return "".join(fields.get(part, part) for part in calls.parts)


def _arguments(calls: Calls, arguments: dict[str, Any]) -> str:
    if calls.syntax == "python":
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    if calls.syntax == "gemma":
        return _gemma(arguments, calls.tags[2])
    if calls.syntax == "tagged":
        a, b, c, d = calls.tags
        return "".join(f"{a}{name}{b}{c}{_raw(value)}{d}" for name, value in arguments.items())
    return _json(arguments)


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _gemma(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, list):
        return f"[{','.join(_gemma(item, quote) for item in value)}]"
    if isinstance(value, dict):
        members = (f"{name}:{_gemma(item, quote)}" for name, item in value.items())
        return "{" + ",".join(members) + "}"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
