"""Marked text -> events. One machine for all formats; a description says what it looks for.

What looks like a call but is none becomes text as it was written, and reading goes on behind its
first character. White space next to markers belongs to the format and is no text.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.text.formats.calls import CallReader, NewId, Tools, first_word
from octavo.text.formats.description import Calls, Description
from octavo.text.formats.events import CallBegin, Event, Reasoning, Text
from octavo.text.formats.reader import Reader, Wait, Words


class Machine:
    """Reads one answer."""

    def __init__(
        self,
        format: Description,
        tools: Tools,
        state: str,
        show: Callable[[str], str],
        new_id: NewId,
    ) -> None:
        """`state`: as in `Thinking`; `show` spells out the marker tokens of a text."""
        self.spans: list[list[int]] = []  # of reasoning: begin, and end where it has one
        self._format = format
        self._show = show
        self._reader = Reader()
        self._events: list[Event] = []
        self._space = ""  # white space that is text only if text follows
        self._trims = False  # white space that comes first is no text
        self._calls = CallReader(self._reader, tools, self._emit, show, new_id)
        calls = format.calls if tools else ()
        self._anchored = [one for one in calls if one.anchored]
        self._anywhere = [one for one in calls if not one.anchored]
        opens = format.reasoning[:1] if format.reasoning and format.reopens else ()
        literals = [one.first for one in self._anywhere] + [*opens, *format.silent]
        self._words = Words(map(first_word, literals))
        self._run = self._answer(state)
        next(self._run)

    def feed(self, text: str, last: bool) -> list[Event]:
        """Events of what is certain now."""
        self._reader.feed(text, last)
        next(self._run, None)
        events, self._events = self._events, []
        return events

    def _answer(self, state: str) -> Wait[None]:
        yield
        if state == "open" and self._format.reasoning:
            yield from self._reason()
        elif state == "may" and not self._format.reopens:
            yield from self._may_reason()
        for calls in self._anchored:
            if (yield from self._row(calls)):
                break
        while (yield from self._reader.scan(self._words, self._put_text)):
            yield from self._at_marker()
        self._put(Text, "", whole=True)

    def _at_marker(self) -> Wait[None]:
        reader = self._reader
        for calls in self._anywhere:
            if (yield from self._row(calls)):
                return
        if self._format.reopens and (yield from self._may_reason()):
            return
        for literal in self._format.silent:
            if (yield from reader.written(literal)):
                self._space, self._trims = "", True
                return
        reader.at += 1
        self._put_text(reader.text[reader.at - 1])

    def _row(self, calls: Calls) -> Wait[bool]:
        found = yield from self._calls.row(calls)
        if found:
            self._space, self._trims = "", True
        return found

    def _may_reason(self) -> Wait[bool]:
        opens = self._format.reasoning and self._format.reasoning[0]
        if not opens or not (yield from self._reader.written(opens)):
            return False
        self._space = ""
        yield from self._reason()
        return True

    def _reason(self) -> Wait[None]:
        """Up to behind the closing marker. Where that never comes, all is reasoning."""
        assert self._format.reasoning is not None
        reader, closes = self._reader, self._format.reasoning[1]
        self.spans.append([reader.position])
        self._trims = True
        yield from reader.scan(Words([closes]), lambda text: self._put(Reasoning, text))
        self.spans[-1].append(reader.position)
        if not (yield from reader.written(closes)):
            self._put(Reasoning, "", whole=True)
        self._space, self._trims = "", True

    def _put_text(self, text: str) -> None:
        self._put(Text, text)

    def _put(self, kind: type[Text] | type[Reasoning], text: str, whole: bool = False) -> None:
        """Give out text, less the white space that may stand next to a marker."""
        text = self._space + text
        if self._trims:
            text = text.lstrip()
        certain = text if whole else text.rstrip()
        self._space = text[len(certain) :]
        self._trims = self._trims and not certain
        if shown := self._show(certain):
            self._events.append(kind(shown))

    def _emit(self, event: Event) -> None:
        if isinstance(event, CallBegin):
            self._space = ""
        self._events.append(event)
