"""Reads calls of tools out of marked text, as a description says how they are written.

A call is announced when its name is whole and one of the tools', and its arguments begin; until
then, what looks like one may still be text. What breaks after that is given as arguments as it was
written, up to the literal that ends the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from octavo.text.formats import json_text
from octavo.text.formats.arguments import ascii_surrogates, read
from octavo.text.formats.description import Calls
from octavo.text.formats.events import CallArguments, CallBegin, CallEnd, Event
from octavo.text.formats.reader import Broken, Reader, Wait, Words

_NAME = re.compile(r"[A-Za-z0-9_.\-]*")
_ID = re.compile(r"[A-Za-z0-9_.:\-]*")
_DIGITS = re.compile(r"[0-9]*")
_IGNORED = ("id", "type", "index", "tool_call_id")  # members of a call's object that carry nothing
_SHORTEST_END = 3  # characters of a literal that can be told from arguments

Tools = Mapping[str, Any]  # name: schema of the parameters
NewId = Callable[[str, int], str]  # of a name and the call's index


class _Stage(Enum):
    UNKNOWN = 0  # may still be no call
    OPEN = 1  # announced
    WHOLE = 2  # its arguments are whole


class CallReader:
    """Reads the calls of one answer from `reader`."""

    def __init__(
        self,
        reader: Reader,
        tools: Tools,
        emit: Callable[[Event], None],
        show: Callable[[str], str],
        new_id: NewId,
    ) -> None:
        """`show` spells out the marker tokens of a text."""
        self._reader = reader
        self._tools = tools
        self._emit = emit
        self._show = show
        self._new_id = new_id
        self._index = -1
        self._stage = _Stage.UNKNOWN
        self._name = ""
        self._id = ""
        self._used = 0  # position behind what cannot become text any more

    def row(self, calls: Calls) -> Wait[bool]:
        """A call or several. False, and nothing is used, where not even one begins."""
        reader, begin = self._reader, self._reader.position
        if not ((yield from reader.written(calls.opens)) and (yield from self._call(calls))):
            reader.seek(begin)
            return False
        while calls.between is not None:
            end = reader.position
            if not ((yield from reader.written(calls.between)) and (yield from self._call(calls))):
                reader.seek(end)
                break
        yield from self._close(calls.closes)
        return True

    def _close(self, closes: str) -> Wait[None]:
        end = self._reader.position
        if not (closes and (yield from self._reader.written(closes))):
            self._reader.seek(end)

    def _call(self, calls: Calls) -> Wait[bool]:
        """One call; False where it does not begin."""
        self._stage, self._name, self._id = _Stage.UNKNOWN, "", ""
        try:
            for part in calls.parts:
                yield from self._part(part, calls)
                self._used = self._reader.position
        except Broken:
            if self._stage is _Stage.OPEN:
                yield from self._rest(calls)
            elif self._stage is _Stage.WHOLE:
                self._reader.seek(self._used)
        return self._stage is not _Stage.UNKNOWN

    def _part(self, part: str, calls: Calls) -> Wait[None]:
        reader = self._reader
        if part == "{name}":
            yield from reader.spaces()
            self._name = self._known((yield from reader.run(_NAME)))
        elif part == "{id}":
            self._id = yield from reader.run(_ID)
        elif part == "{index}":
            yield from reader.run(_DIGITS)
        elif part == "{arguments}":
            yield from self._arguments(calls)
        elif part == "{call}":
            yield from self._object(calls.keys)
        else:
            yield from reader.expect(part)

    def _known(self, name: str) -> str:
        if name not in self._tools:
            raise Broken
        return name

    def _begin(self) -> None:
        self._index += 1
        id = self._id or self._new_id(self._name, self._index)
        self._stage, self._used = _Stage.OPEN, self._reader.position
        self._emit(CallBegin(self._index, id, self._name))

    def _give(self, text: str) -> None:
        """A piece of the arguments, up to where the reader stands."""
        if shown := self._show(text):
            self._emit(CallArguments(self._index, shown))
        self._used = self._reader.position
        self._reader.drop()

    def _end(self) -> None:
        self._stage, self._used = _Stage.WHOLE, self._reader.position
        self._emit(CallEnd(self._index))

    def _all(self, arguments: str) -> None:
        """A whole call at once."""
        self._begin()
        self._give(arguments)
        self._end()

    def _rest(self, calls: Calls) -> Wait[None]:
        """Arguments that are none, as they were written."""
        self._reader.seek(self._used)
        word = first_word(calls.last)
        if len(word) < _SHORTEST_END and word.isascii():
            word = ""
        if (yield from self._reader.scan(Words([word]), self._give)):
            self._end()
            yield from self._reader.written(calls.parts[-1])

    def _arguments(self, calls: Calls) -> Wait[None]:
        if calls.syntax == "json":
            yield from self._json(calls)
            return
        starts = calls.tags[0] if calls.syntax == "tagged" else "{" * (calls.syntax == "gemma")
        if not (yield from self._comes(starts)):
            yield from self._none(calls)
            return
        self._begin()
        schema = self._tools[self._name]
        yield from read(self._reader, self._give, self._show, calls, schema)
        self._end()

    def _json(self, calls: Calls | None) -> Wait[None]:
        """Of a call that must go on as `calls` say where there are no arguments."""
        reader = self._reader
        yield from reader.spaces()
        char = yield from reader.peek()
        if char == "{":
            self._begin()
            yield from json_text.value(reader, self._give)
            self._end()
        elif char == '"':
            self._all(self._decoded((yield from json_text.collected(reader))))
        elif (yield from reader.literal("null")):
            self._all("{}")
        elif calls is not None:
            yield from self._none(calls)
        else:
            raise Broken

    def _decoded(self, text: str) -> str:
        """Arguments that were written as a string that holds JSON."""
        inner = json_text.loaded(self._show(text))
        if not isinstance(json_text.loaded(inner), dict):
            raise Broken
        return ascii_surrogates(inner)

    def _none(self, calls: Calls) -> Wait[None]:
        """A call without arguments, if it ends here."""
        follows = calls.last or calls.first
        ends = bool(follows) and (yield from self._comes(follows))
        if not ends and (yield from self._reader.peek()):
            raise Broken
        self._all("{}")

    def _comes(self, literal: str) -> Wait[bool]:
        """Whether it comes next; it is not used."""
        begin = self._reader.position
        found = yield from self._reader.written(literal)
        self._reader.seek(begin)
        return found

    def _object(self, keys: tuple[str, ...]) -> Wait[None]:
        """The JSON object that is the whole call."""
        reader, held = self._reader, ""
        yield from reader.expect("{")
        while True:
            key = yield from json_text.string(reader)
            yield from reader.expect(":")
            if key == keys[0] and not self._name:
                self._name = self._known((yield from json_text.string(reader)))
            elif key in keys[1:] and self._stage is _Stage.UNKNOWN and not held:
                if self._name:
                    yield from self._json(None)
                else:
                    held = yield from json_text.collected(reader)
            elif key in _IGNORED:
                yield from json_text.collected(reader)
            else:
                raise Broken
            if (yield from reader.written("}")):
                break
            yield from reader.expect(",")
        self._close_object(held)

    def _close_object(self, held: str) -> None:
        """Arguments that came before the name, or none at all."""
        if self._stage is not _Stage.UNKNOWN:
            return
        if not self._name:
            raise Broken
        held = self._decoded(held) if held.startswith('"') else held
        if held not in ("", "null") and not held.startswith("{"):
            raise Broken
        self._all("{}" if held in ("", "null") else held)


def first_word(literal: str) -> str:
    """Up to its first white space."""
    words = literal.split()
    return words[0] if words else ""
