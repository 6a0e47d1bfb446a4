"""Arguments of a call, in the syntaxes that models write them in -> pieces of JSON text.

Each is a generator over a reader that stands where the arguments begin and is left behind them.
JSON comes out as it is read, the others argument by argument. Each raises Broken where the text
is something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from octavo.text.formats import json_text
from octavo.text.formats.description import Calls
from octavo.text.formats.literals import gemma, python, typed
from octavo.text.formats.reader import Broken, Reader, Wait

_KEY = re.compile(r"[^\s=,()'\"]*")
_BARE_KEY = re.compile(r"[^:,{}\[\]]*")

_SURROGATE = re.compile("[\ud800-\udfff]")

Out = Callable[[str], None]
Show = Callable[[str], str]


class _Members:
    """Writes a JSON object member by member."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._any = False

    def add(self, name: str, value: Any) -> None:
        try:
            member = f"{_json(name)}: {_json(value)}"
        except ValueError as error:
            raise Broken from error
        self._out((", " if self._any else "{") + member)
        self._any = True

    def close(self) -> None:
        self._out("}" if self._any else "{}")


def _json(value: Any) -> str:
    return ascii_surrogates(json.dumps(value, ensure_ascii=False, allow_nan=False))


def ascii_surrogates(text: str) -> str:
    """JSON text with its lone surrogates, which UTF-8 cannot spell, as escapes."""
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def read(reader: Reader, out: Out, show: Show, calls: Calls, schema: Any) -> Wait[None]:
    """`schema`: of the tool's parameters; `show` spells marker tokens out."""
    if calls.syntax == "json":
        yield from json_text.value(reader, out)
        return
    members = _Members(out)
    if calls.syntax == "python":
        yield from _python(reader, members, show)
    elif calls.syntax == "gemma":
        yield from _gemma(reader, members, show, calls.tags[2])
    else:
        yield from _tagged(reader, members, show, calls.tags, schema)
    members.close()


def _python(reader: Reader, members: _Members, show: Show) -> Wait[None]:
    """`a=1, b="x"`, up to the parenthesis that closes it."""
    yield from reader.spaces()
    while (yield from reader.peek()) != ")":
        name = yield from reader.run(_KEY)
        yield from reader.expect("=")
        text = yield from _balanced(reader, "'\"", escapes=True)
        members.add(show(name), python(show(text)))
        yield from _comma(reader, ")")


def _gemma(reader: Reader, members: _Members, show: Show, quote: str) -> Wait[None]:
    """`{a:1,b:<escape>x<escape>}`."""
    yield from reader.expect("{")
    yield from reader.spaces()
    while (yield from reader.peek()) != "}":
        name = yield from reader.run(_BARE_KEY)
        yield from reader.expect(":")
        text = yield from _balanced(reader, [quote])
        shown = quote.join(map(show, text.split(quote)))
        members.add(show(name.strip()), gemma(shown, quote))
        yield from _comma(reader, "}")
    reader.at += 1


def _tagged(
    reader: Reader, members: _Members, show: Show, tags: tuple[str, str, str, str], schema: Any
) -> Wait[None]:
    """`<arg_key>a</arg_key><arg_value>1</arg_value>` and its like, up to something else."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    schemas = properties if isinstance(properties, dict) else {}
    name_opens, name_closes, value_opens, value_closes = tags
    while (yield from reader.written(name_opens)):
        name = show((yield from reader.until(name_closes)).strip())
        if value_opens.strip():
            yield from reader.expect(value_opens.strip())
        text = show((yield from reader.until(value_closes.strip())))
        text = text.removeprefix("\n") if value_opens.endswith("\n") else text
        text = text.removesuffix("\n") if value_closes.startswith("\n") else text
        members.add(name, typed(text, schemas.get(name)))


def _comma(reader: Reader, closer: str) -> Wait[None]:
    yield from reader.spaces()
    if (yield from reader.peek()) != closer:
        yield from reader.expect(",")
        yield from reader.spaces()


def _balanced(reader: Reader, quotes: Iterable[str], escapes: bool = False) -> Wait[str]:
    """The text up to a comma or closing bracket outside of all strings and brackets."""
    begin = reader.position
    depth = 0
    while char := (yield from reader.peek()):
        quote = next((one for one in quotes if one.startswith(char)), "")
        if quote and (yield from reader.literal(quote)):
            yield from _string(reader, quote, escapes)
            continue
        if char in ")]}," and not depth:
            return reader.text[reader.at - (reader.position - begin) : reader.at]
        depth += (char in "([{") - (char in ")]}")
        reader.at += 1
    raise Broken


def _string(reader: Reader, quote: str, escapes: bool) -> Wait[None]:
    """Up to behind its closing quote."""
    while not (yield from reader.literal(quote)):
        if not (char := (yield from reader.peek())):
            raise Broken
        reader.at += 1
        if escapes and char == "\\" and (yield from reader.peek()):
            reader.at += 1
