"""Values that are not written as JSON -> values: Python's literals, Gemma's, and texts without
quotes whose type only the tool's schema tells."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from octavo.text.formats.json_text import loaded
from octavo.text.formats.reader import Broken

_MOST_NESTED = 64
_NAMED = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_WORD = re.compile(r"[^\s,:()\[\]{}'\"]+")
_BARE_KEY = re.compile(r"[^:,{}\[\]]+")
_SPACES = re.compile(r"\s*")
_ESCAPE = re.compile(
    r"\\(?:(\n)|([\\'\"abfnrtv/])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})"
    r"|N\{([^}]+)\}|([0-7]{1,3}))"
)
_SHORT = dict(zip("\\'\"abfnrtv/", "\\'\"\a\b\f\n\r\t\v/", strict=True))
_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])")


def python(text: str) -> Any:
    """Of a literal with strings in quotes. Raises Broken where it is none."""
    return _Literal(text, "").whole()


def gemma(text: str, quote: str) -> Any:
    """Of a literal whose strings have `quote` around them and no escapes, and whose keys have
    nothing. Raises Broken where it is none."""
    return _Literal(text, quote).whole()


class _Literal:
    def __init__(self, text: str, quote: str) -> None:
        self._text = text
        self._at = 0
        self._quote = quote

    def whole(self) -> Any:
        found = self._value(0)
        if self._peek():
            raise Broken
        return found

    def _peek(self) -> str:
        self._take(_SPACES)
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise Broken
        self._at = match.end()
        return match[0]

    def _value(self, depth: int) -> Any:
        char = self._peek()
        if depth > _MOST_NESTED or not char:
            raise Broken
        if self._quote and self._text.startswith(self._quote, self._at):
            return self._between(self._quote)
        if char in "'\"" and not self._quote:
            return self._string(char)
        if char == "{":
            return dict(self._items("}", depth))
        if char in "[(":
            return [value for value, _ in self._items("]" if char == "[" else ")", depth)]
        word = self._take(_WORD)
        return _NAMED[word] if word in _NAMED else loaded(word)

    def _items(self, closer: str, depth: int) -> list[tuple[Any, Any]]:
        """Of a container: values with None, or in braces keys with values."""
        self._at += 1
        found: list[tuple[Any, Any]] = []
        while self._peek() != closer:
            if found:
                self._expect(",")
                if self._peek() == closer:
                    break
            found.append(self._item(closer, depth + 1))
        self._at += 1
        return found

    def _item(self, closer: str, depth: int) -> tuple[Any, Any]:
        if closer != "}":
            return self._value(depth), None
        key = self._take(_BARE_KEY).strip() if self._quote else self._value(depth)
        if not isinstance(key, str):
            raise Broken
        self._expect(":")
        return key, self._value(depth)

    def _expect(self, char: str) -> None:
        if self._peek() != char:
            raise Broken
        self._at += 1

    def _between(self, quote: str) -> str:
        begin = self._at + len(quote)
        end = self._text.find(quote, begin)
        if end < 0:
            raise Broken
        self._at = end + len(quote)
        return self._text[begin:end]

    def _string(self, quote: str) -> str:
        begin = self._at = self._at + 1
        while self._text[self._at : self._at + 1] != quote:
            if self._at >= len(self._text):
                raise Broken
            self._at += 2 if self._text[self._at] == "\\" else 1
        self._at += 1
        return _unescaped(self._text[begin : self._at - 1])


def _unescaped(text: str) -> str:
    found = _ESCAPE.sub(_character, text)
    return _PAIR.sub(
        lambda pair: "".join(pair.groups()).encode("utf-16", "surrogatepass").decode("utf-16"),
        found,
    )


def _character(match: re.Match[str]) -> str:
    line, short, *codes, name, octal = match.groups()
    if line:
        return ""
    if short:
        return _SHORT[short]
    try:
        if name:
            return unicodedata.lookup(name)
        return chr(int(octal, 8) if octal else int(next(filter(None, codes)), 16))
    except (KeyError, ValueError, OverflowError) as error:
        raise Broken from error


def typed(text: str, schema: Any) -> Any:
    """The value of a text without quotes: a string where the schema says so, else JSON if it is
    JSON of a type that the schema allows, else a string."""
    types = types_of(schema)
    if types == {"string"}:
        return text
    try:
        value = loaded(text.strip())
    except Broken:
        return text
    return text if types and _type_of(value) not in types else value


def types_of(schema: Any) -> set[str]:
    """JSON types that a schema allows; none where it does not say."""
    if not isinstance(schema, dict):
        return set()
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return {_type_of(value) for value in values} if isinstance(values, list) else set()
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            found = [types_of(one) for one in schema[union]]
            return set().union(*found) if all(found) else set()
    named = schema.get("type")
    types = {named} if isinstance(named, str) else set(named) if isinstance(named, list) else set()
    return types | ({"integer"} if "number" in types else set())


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float) and value.is_integer():
        return "integer"  # as JSON Schema counts
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(value, kind):
            return name
    return "array" if isinstance(value, list) else "object"
