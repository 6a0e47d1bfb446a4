"""One JSON value in text that comes in pieces, given out as far as it is certainly JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from octavo.text.formats.reader import Broken, Reader, Wait

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_LONGEST_ESCAPE = 6
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_WORD = re.compile(r"[-+.0-9a-zA-Z]*")
_CLOSERS = {"{": "}", "[": "]"}

Out = Callable[[str], None]


def value(reader: Reader, out: Out) -> Wait[None]:
    """Read one value. Line ends and other control characters in strings become escapes.

    Raises:
        Broken: it is no JSON; the reader stands at the first character that cannot be.
    """
    closers: list[str] = []
    while True:
        opened = yield from _begin(reader, out, closers)
        if not opened and not (yield from _next(reader, out, closers)):
            return


def _begin(reader: Reader, out: Out, closers: list[str]) -> Wait[bool]:
    """A value, or a container's beginning up to its first value: then another value follows."""
    char = yield from _after_spaces(reader, out)
    if char == '"':
        yield from _string(reader, out)
    elif char in _CLOSERS:
        _use(reader, out)
        if (yield from _after_spaces(reader, out)) == _CLOSERS[char]:
            _use(reader, out)
            return False
        closers.append(_CLOSERS[char])
        if char == "{":
            yield from _key(reader, out)
        return True
    else:
        yield from _scalar(reader, out)
    return False


def _next(reader: Reader, out: Out, closers: list[str]) -> Wait[bool]:
    """Behind a value: whether another one follows."""
    while closers:
        char = yield from _after_spaces(reader, out)
        if char == closers[-1]:
            _use(reader, out)
            closers.pop()
        elif char == ",":
            _use(reader, out)
            if closers[-1] == "}":
                yield from _key(reader, out)
            return True
        else:
            raise Broken
    return False


def _key(reader: Reader, out: Out) -> Wait[None]:
    if (yield from _after_spaces(reader, out)) != '"':
        raise Broken
    yield from _string(reader, out)
    if (yield from _after_spaces(reader, out)) != ":":
        raise Broken
    _use(reader, out)


def _string(reader: Reader, out: Out) -> Wait[None]:
    _use(reader, out)
    while True:
        match = _PLAIN.match(reader.text, reader.at)
        if match and match[0]:
            _use(reader, out, len(match[0]))
        char = yield from reader.peek()
        if char == '"':
            _use(reader, out)
            return
        if char == "\\":
            yield from _escape(reader, out)
        elif char and char < " ":
            reader.at += 1
            out(json.dumps(char)[1:-1])
        elif not char:
            raise Broken


def _escape(reader: Reader, out: Out) -> Wait[None]:
    while True:
        match = _ESCAPE.match(reader.text, reader.at)
        if match:
            _use(reader, out, len(match[0]))
            return
        if reader.ended or len(reader.text) - reader.at >= _LONGEST_ESCAPE:
            raise Broken
        yield


def _scalar(reader: Reader, out: Out) -> Wait[None]:
    begin = reader.position
    word = yield from reader.run(_WORD)
    if not _SCALAR.fullmatch(word):
        reader.seek(begin)
        raise Broken
    out(word)


def _after_spaces(reader: Reader, out: Out) -> Wait[str]:
    """The next character that is no space."""
    while (char := (yield from reader.peek())) and char in " \t\r\n":
        _use(reader, out)
    return char


def _use(reader: Reader, out: Out, size: int = 1) -> None:
    reader.at += size
    out(reader.text[reader.at - size : reader.at])


def collected(reader: Reader) -> Wait[str]:
    """The text of one value, when it is whole."""
    pieces: list[str] = []
    yield from value(reader, pieces.append)
    return "".join(pieces).strip()


def string(reader: Reader) -> Wait[str]:
    """One string's value.

    Raises:
        Broken: something else comes.
    """
    found = loaded((yield from collected(reader)))
    if not isinstance(found, str):
        raise Broken
    return found


def loaded(text: str) -> Any:
    """Raises Broken where `text` is no JSON."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise Broken from error


def _refused(name: str) -> None:
    raise ValueError(name)
