"""A format read off the model's own chat template: known calls are rendered, and what stands
around their names and arguments are its delimiters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.text.formats.description import Calls
from octavo.text.formats.probe import PROBE_ID, Call, Probe, common_start

_NAMES = ("probe_name_a", "probe_name_b")
_KEYS = ("probe_key_a", "probe_key_b")
_VALUES = ("probe_value_a", "probe_value_b")
_JSON = re.compile(
    r'\{\s*"probe_key_a":\s*"probe_value_a",\s*"probe_key_b":\s*"probe_value_b"\s*\}'
)
_PYTHON = re.compile(r"""probe_key_a=(['"])probe_value_a\1,\s*probe_key_b=\1probe_value_b\1""")
_GEMMA = re.compile(r"\{probe_key_a:(\S+?)probe_value_a\1,probe_key_b:\1probe_value_b\1\}")
_OTHER = r'"(?:id|type|index)":\s*(?:"(?:\{id\}|function)"|\d+)'  # member of a call's object
_OBJECT = re.compile(
    rf"\{{\s*(?:{_OTHER},\s*)*"
    r'"(\w+)":\s*"\{name\}",\s*"(\w+)":\s*\{arguments\}'
    rf"(?:,\s*{_OTHER})*\s*\}}"
)
_SHORTEST = 3  # characters of a literal that is looked for anywhere in an answer


def infer(probe: Probe) -> Calls | None:
    """None where calls are not shown, or not one behind the other."""
    turns = [probe.calls(calls, tools(calls)) for calls in ([_call(0)], [_call(0), _call(1)])]
    marked = [_fields(turn) for turn in turns if turn is not None]
    if not marked or marked[0] is None:
        return None
    calls, one = marked[0]
    several = marked[1] if len(marked) > 1 else None
    row = ("", one, None, "") if several is None else _row(one, several[1])
    return _settled(calls, *row) if row is not None else None


def _call(index: int) -> Call:
    return _NAMES[index], dict(zip(_KEYS, _VALUES, strict=True))


def tools(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Tools whose arguments are all strings."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "a probe",
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": "string"} for key in arguments},
                    "required": [],
                },
            },
        }
        for name, arguments in calls
    ]


def _fields(turn: str) -> tuple[Calls, str] | None:
    """The syntax of the arguments, and the turn with fields in place of what is known."""
    turn = turn.replace(PROBE_ID.format(0), "{id}").replace(PROBE_ID.format(1), "{id}")
    for name in _NAMES:
        turn = turn.replace(name, "{name}")
    for pattern, syntax in ((_JSON, "json"), (_PYTHON, "python"), (_GEMMA, "gemma")):
        if match := pattern.search(turn):
            quote = match[1] if syntax == "gemma" else ""
            calls = Calls(call="", syntax=syntax, tags=("", "", quote, quote))
            return calls, pattern.sub("{arguments}", turn)
    return _tagged(turn)


def _tagged(turn: str) -> tuple[Calls, str] | None:
    """Arguments as a row of keys and values, each between tags."""
    match = re.search(r"probe_key_a(.+?)probe_value_a(.+?)probe_key_b\1probe_value_b", turn, re.S)
    if match is None:
        return None
    lead = turn[: match.start()].rpartition("{name}")[2]
    between, after = match[2], turn[match.end() :]
    opens = _common_end(lead, between).lstrip()
    closes = between.removesuffix(opens)
    if not opens or not closes or not after.startswith(closes):
        return None
    inner = match[1]
    calls = Calls(call="", syntax="tagged", tags=(opens, inner.rstrip("\n"), _line(inner), closes))
    whole = re.escape(opens) + r"probe_key_a.+?probe_value_b" + re.escape(closes)
    return calls, re.sub(whole, "{arguments}", turn, flags=re.S)


def _line(text: str) -> str:
    return "\n" if text.endswith("\n") else ""


def _row(one: str, several: str) -> tuple[str, str, str | None, str] | None:
    """What opens the row, a call, what is between calls, what closes the row."""
    first, last = _span(one)
    core = one[first:last]
    parts = several.split(core)
    if len(parts) != 3:
        return None
    lead, between, tail = one[:first], parts[1], one[last:]
    head = _common_end(lead, between)
    foot = common_start(tail, between.removesuffix(head))
    call = head + core + foot
    gap = between.removesuffix(head).removeprefix(foot)
    return lead.removesuffix(head), call, gap, tail.removeprefix(foot)


def _span(one: str) -> tuple[int, int]:
    """From the first field to behind the last."""
    places = [(m.start(), m.end()) for m in re.finditer(r"\{(?:name|id|arguments)\}", one)]
    return places[0][0], places[-1][1]


def _common_end(first: str, second: str) -> str:
    return common_start(first[::-1], second[::-1])[::-1]


def _settled(calls: Calls, opens: str, call: str, between: str | None, closes: str) -> Calls:
    """With a JSON object as such."""
    keys = calls.keys
    match = _OBJECT.search(call) if calls.syntax == "json" else None
    if match is not None:
        keys = (match[1], match[2])
        call = call[: match.start()] + "{call}" + call[match.end() :]
    found = msgspec.structs.replace(
        calls, opens=opens, call=call, between=between, closes=closes, keys=keys
    )
    weak = len(found.first.strip()) < _SHORTEST
    return msgspec.structs.replace(found, anchored=weak)
