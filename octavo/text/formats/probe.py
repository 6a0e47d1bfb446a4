"""What a model's chat template writes for known conversations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from octavo.base.errors import RequestError
from octavo.text.chat_template import ChatTemplate

Call = tuple[str, dict[str, Any]]  # name, arguments

_USER = {"role": "user", "content": "probe of the user"}
_CONTENT = "probe of the content"
_REASONING = "probe of the reasoning"
PROBE_ID = "probe0id{}"  # nine characters with its number, which some templates insist on


class Probe:
    """Renders turns of the assistant, and cuts them out of the prompt around them."""

    def __init__(self, template: ChatTemplate, reasoning: tuple[str, str] | None = None) -> None:
        """`reasoning`: markers that are known; they are no part of the header."""
        self._template = template
        self._reasoning = reasoning

    @cached_property
    def header(self) -> str:
        """What the template writes to open the assistant's turn, whatever the turn says."""
        before = self._render([_USER], add_generation_prompt=True) or ""
        header = common_start(before, self._whole({"content": _CONTENT}))
        header = header[len(common_start(self._before, header)) :]
        for marker in self._reasoning or ():
            header = header.partition(marker.strip())[0]
        return header

    @cached_property
    def end(self) -> str:
        """What it writes behind the turn."""
        return self._whole({"content": _CONTENT}).rpartition(_CONTENT)[2]

    @cached_property
    def reasoning(self) -> tuple[str, str] | None:
        """The markers around reasoning, where it shows that of a last turn."""
        turn = self._turn({"content": _CONTENT, "reasoning_content": _REASONING})
        opens, found, rest = turn.partition(_REASONING)
        closes = rest.partition(_CONTENT)[0].strip()
        return (opens.strip(), closes) if found and opens.strip() and closes else None

    def calls(self, calls: Sequence[Call], tools: Sequence[Mapping[str, Any]]) -> str | None:
        """A turn of calls alone. None where the template cannot show them or does not."""
        for convert in (_as_it_is, json.dumps):
            for content in ({}, {"content": ""}):
                message = {"tool_calls": _messages(calls, convert), **content}
                turn = self._answer(self._turn(message, tools))
                if all(name in turn for name, _ in calls):
                    return turn
        return None

    @cached_property
    def _before(self) -> str:
        return self._render([_USER]) or ""

    def _turn(self, message: dict[str, Any], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Of the assistant, without header and end; "" where it cannot be rendered."""
        whole = self._whole(message, tools)
        before = self._render([_USER], tools) or ""
        if not whole.startswith(before):
            return ""
        turn = whole[len(before) :]
        turn = turn[len(common_start(self.header, turn)) :]
        ends = (i for i, char in enumerate(self.end) if i == 0 or char in "<[")
        return next((turn[: -len(e)] for i in ends if turn.endswith(e := self.end[i:])), turn)

    def _answer(self, turn: str) -> str:
        """Without a block of reasoning that is empty, or was opened before it."""
        if self._reasoning is None:
            return turn
        opens, closes = (re.escape(marker.strip()) for marker in self._reasoning)
        return re.sub(rf"^\s*({opens})?\s*{closes}\s*", "", turn)

    def _whole(self, message: dict[str, Any], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return self._render([_USER, {"role": "assistant", **message}], tools) or ""

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = False,
    ) -> str | None:
        try:
            return self._template.render(
                messages, tools=tools or None, add_generation_prompt=add_generation_prompt
            )
        except RequestError:
            return None


def _as_it_is(arguments: dict[str, Any]) -> Any:
    return arguments


def _messages(calls: Sequence[Call], convert: Callable[[dict[str, Any]], Any]) -> list[Any]:
    return [
        {
            "type": "function",
            "id": PROBE_ID.format(i),
            "function": {"name": name, "arguments": convert(arguments)},
        }
        for i, (name, arguments) in enumerate(calls)
    ]


def common_start(first: str, second: str) -> str:
    """The longest text that both begin with."""
    size = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    return first[: min(len(first), len(second))] if size is None else first[:size]
