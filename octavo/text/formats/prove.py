"""The proof that a format reads what the model's own chat template writes: calls are rendered,
the assistant's turn is read back in pieces, cut at every place, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from octavo.text.formats.description import Description
from octavo.text.formats.events import CallArguments, CallBegin, CallEnd, Event, Text, merged
from octavo.text.formats.machine import Machine
from octavo.text.formats.marks import Marks
from octavo.text.formats.probe import Call, Probe
from octavo.text.tokenizer import Tokenizer

NOT_SHOWN = "the chat template does not show calls of tools"
_PROPERTIES = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "count": {"type": "integer"},
    "flag": {"type": "boolean"},
    "nothing": {"type": "null"},
    "list": {"type": "array"},
    "nested": {"type": "object"},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "a probe",
            "parameters": {"type": "object", "properties": properties, "required": []},
        },
    }
    for name, properties in (("probe_all", _PROPERTIES), ("probe_none", {}))
]
_SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}  # type: ignore[index]
_SHORT: Call = ("probe_all", {"text": 'a "b"\n{c}\\', "list": [1, {"d": []}]})
_LONG: Call = (
    "probe_all",
    {
        "text": "[true] 12, 'é\t😀' \"}]\\n</a>\n  ",
        "number": -1.5e-3,
        "count": 1234567890123,
        "flag": True,
        "nothing": None,
        "list": ["", "a, b", [], {}, [1, [2.5]]],
        "nested": {"a b": {"c": [{"d": "{"}, {"d": None}]}, "e": "12"},
    },
)
_NONE: Call = ("probe_none", {})


Render = Callable[[Sequence[Call]], str | None]  # a turn of these calls, if it can be had


def shown_by(probe: Probe) -> Render:
    """As the model's chat template writes it."""
    return lambda calls: probe.calls(calls, TOOLS)


def prove(format: Description, render: Render, tokenizer: Tokenizer) -> str | None:
    """None if it holds, else why not."""
    turns = [([_SHORT], True), ([_LONG], False), ([_NONE], True), ([_LONG, _NONE, _SHORT], False)]
    marks = Marks(tokenizer.added_tokens, format.literals)
    bound = format.mapped(marks.spelled)
    for calls, at_every_place in turns:
        turn = render(calls)
        if turn is None and len(calls) == 1:
            return NOT_SHOWN
        if turn is not None and (why := _check(bound, marks, turn, calls, at_every_place)):
            return why
    return None


def fits(format: Description, render: Render, tokenizer: Tokenizer) -> bool:
    """Whether a short call comes back, whole."""
    turn = render([_SHORT])
    marks = Marks(tokenizer.added_tokens, format.literals)
    return turn is not None and not _check(format.mapped(marks.spelled), marks, turn, [_SHORT])


def unread(render: Render) -> str:
    """Why no format fits."""
    turn = render([_SHORT])
    return NOT_SHOWN if turn is None else f"no known way of writing calls reads {turn!r}"


def _check(
    format: Description, marks: Marks, turn: str, calls: Sequence[Call], everywhere: bool = False
) -> str | None:
    text = marks.spelled(turn)
    events = _read(format, marks, [text])
    if (why := _difference(events, calls, marks)) is not None:
        return f"{why}, read from {turn!r}"
    cuts = range(1, len(text)) if everywhere else ()
    for pieces in ([text[:i], text[i:]] for i in cuts):
        if _read(format, marks, pieces) != events:
            return f"cut into {pieces!r} it reads otherwise than whole"
    if _read(format, marks, text) != events:
        return f"character by character {turn!r} reads otherwise than whole"
    return None


def _read(format: Description, marks: Marks, pieces: Sequence[str]) -> list[Event]:
    def show(text: str) -> str:
        return "".join(marks.texts.get(char, char) for char in text)

    machine = Machine(format, _SCHEMAS, "may", show, lambda name, index: f"id{index}")
    last = len(pieces) - 1
    return merged([e for i, piece in enumerate(pieces) for e in machine.feed(piece, i == last)])


def _difference(events: list[Event], calls: Sequence[Call], marks: Marks) -> str | None:
    names = [event.name for event in events if isinstance(event, CallBegin)]
    if names != [name for name, _ in calls]:
        return f"calls of {[name for name, _ in calls]} came back as {names}"
    if sum(isinstance(event, CallEnd) for event in events) != len(calls):
        return "a call came back without its end"
    texts = [event.text for event in events if isinstance(event, CallArguments)]
    for text, (_, arguments) in zip(texts, calls, strict=True):
        if not _same(text, arguments):
            return f"arguments {json.dumps(arguments)} came back as {text}"
    left = marks.removed("".join(event.text for event in events if isinstance(event, Text)))
    return f"{left!r} was left over" if left.strip() else None


def _same(text: str, arguments: dict[str, Any]) -> bool:
    try:
        return json.dumps(json.loads(text), sort_keys=True) == json.dumps(arguments, sort_keys=True)
    except ValueError:
        return False
