"""Calls in a conversation's past, in the form that its chat template writes them in.

Clients send a call's arguments as the text of a JSON object, and null as the content beside it.
Most templates want the object, and no content; some want the text, some look for the null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROBE = "octavo_probe"


@dataclass(frozen=True)
class CallForm:
    """How an assistant's message with calls is written."""

    arguments_as_text: bool = False
    null_content: bool = False  # where it has no content: null, or no such field

    def fitted(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """The message in this form. Arguments that are no object's text stay as they are."""
        calls = message.get("tool_calls")
        if not isinstance(calls, Sequence) or isinstance(calls, str) or not calls:
            return message
        change = _text if self.arguments_as_text else _object
        content = {"content": None} if self.null_content else {}
        return {**content, **message, "tool_calls": [_changed(call, change) for call in calls]}


def form_of(render: Callable[[Sequence[Mapping[str, Any]]], str | None]) -> CallForm:
    """The first form of a call that `render` shows, which gives None for what it refuses; the
    usual one where it shows none. The probe's id is as long as templates that mind want it."""
    call = {"name": "some_function", "arguments": {PROBE: 0}}
    calls = [{"id": "callprobe", "type": "function", "function": call}]
    for form in [CallForm(text, null) for text in (False, True) for null in (False, True)]:
        message = form.fitted({"role": "assistant", "tool_calls": calls})
        shown = render([{"role": "user", "content": "?"}, message]) or ""
        if PROBE in shown and f"{{'{PROBE}'" not in shown:  # and not as Python's own dict
            return form
    return CallForm()


def _changed(call: Any, change: Callable[[Any], Any]) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    return {**call, "function": {**function, "arguments": change(function.get("arguments"))}}


def _text(arguments: Any) -> Any:
    if isinstance(arguments, str):
        return arguments or "{}"
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)


def _object(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments  # a model wrote it; the template may be able to show it
    return found if isinstance(found, dict) else arguments
