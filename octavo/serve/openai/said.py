"""What one sequence of a chat says: pieces of its text -> deltas, and the message that they make.

An answer that is not streamed is made of the same events as the chunks of one that is.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import UNSET, UnsetType

from octavo.serve.openai.wire import ChatDelta, ChatMessage, FunctionCall, ToolCall
from octavo.text.assembler import TextDelta
from octavo.text.formats.events import CallArguments, CallBegin, CallEnd, Event, Reasoning, Text
from octavo.text.formats.output_format import OutputParser


class Said:
    """`shows_reasoning` false: it is counted, and nobody sees it. `named`: the client chose the
    function, and so looks for no calls in the finish reason."""

    def __init__(self, parser: OutputParser, shows_reasoning: bool, named: bool) -> None:
        self._parser = parser
        self._shows_reasoning = shows_reasoning
        self._named = named
        self._events: list[Event] = []

    @property
    def reasoning_tokens(self) -> int:
        """So far."""
        return self._parser.reasoning_tokens

    def take(self, piece: TextDelta) -> list[ChatDelta]:
        """What the piece adds. After its last piece, the message is whole."""
        events = self._parser.feed(piece)
        if not self._shows_reasoning:
            events = [event for event in events if not isinstance(event, Reasoning)]
        self._events += events
        return [delta for event in events if (delta := _delta(event)) is not None]

    def message(self) -> ChatMessage:
        """Its content is null where there are only calls, or only reasoning."""
        content = "".join(event.text for event in self._events if isinstance(event, Text))
        reasoning = "".join(event.text for event in self._events if isinstance(event, Reasoning))
        calls = self._calls()
        return ChatMessage(
            content=content or (None if calls or self.reasoning_tokens else ""),
            tool_calls=calls or UNSET,
            reasoning=reasoning or UNSET,
            reasoning_content=reasoning or UNSET,
        )

    def finish_reason(self, reason: str) -> str:
        """`reason`: the engine's."""
        called = any(isinstance(event, CallBegin) for event in self._events)
        return "tool_calls" if reason == "stop" and called and not self._named else reason

    def _calls(self) -> list[ToolCall]:
        arguments = defaultdict[int, list[str]](list)
        for event in self._events:
            if isinstance(event, CallArguments):
                arguments[event.index].append(event.text)
        return [
            _call(event, "".join(arguments[event.index]))
            for event in self._events
            if isinstance(event, CallBegin)
        ]


def _delta(event: Event) -> ChatDelta | None:
    match event:
        case Text():
            return ChatDelta(content=event.text)
        case Reasoning():
            return ChatDelta(reasoning=event.text, reasoning_content=event.text)
        case CallBegin():
            return ChatDelta(tool_calls=[_call(event, "", event.index)])
        case CallArguments():
            function = FunctionCall(arguments=event.text)
            return ChatDelta(tool_calls=[ToolCall(index=event.index, function=function)])
        case CallEnd():
            return None


def _call(begun: CallBegin, arguments: str, index: int | UnsetType = UNSET) -> ToolCall:
    function = FunctionCall(begun.name, arguments)
    return ToolCall(index=index, id=begun.id, type="function", function=function)
