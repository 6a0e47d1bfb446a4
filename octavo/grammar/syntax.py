"""The syntax that notations of grammars share: alternatives, sequences, repetitions, groups.

A notation brings its tokens. Here they become a tree for each definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from octavo.base.errors import RequestError
from octavo.grammar.strict_json import decode

MAX_NESTING = 64  # groups in groups
MAX_COUNT = 10_000  # of a repetition
_ESCAPES = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|u\{([0-9a-fA-F]{1,6})\}|(.))",
    re.DOTALL,
)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "v": "\v", "0": "\0"}


@dataclass(frozen=True, slots=True)
class Text:
    value: str
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    source: str
    flags: str
    at: int


@dataclass(frozen=True, slots=True)
class Span:
    """One character, from `low` to `high`."""

    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Special:
    """One token, as it is written between < and >."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value of this schema."""

    schema: Any


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Both:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Tree
    at: int


@dataclass(frozen=True, slots=True)
class Times:
    part: Tree
    least: int
    most: int | None


Tree = Text | Pattern | Span | Name | Special | Json | Sequence | Either | Both | Not | Times


class Definition(NamedTuple):
    body: Tree
    at: int


class Source:
    """The text of a grammar, for the places in errors."""

    def __init__(self, text: str) -> None:
        self.text = text

    def wrong(self, message: str, at: int) -> RequestError:
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        return RequestError(f"grammar: line {line}, column {column}: {message}", "grammar")

    def unquoted(self, quoted: str, at: int) -> str:
        """What a text in quotes says, without them."""

        def meant(found: re.Match[str]) -> str:
            digits = found[1] or found[2] or found[3] or found[4]
            if digits is None:
                return _plain(found[5], at)
            if int(digits, 16) > 0x10FFFF:
                raise self.wrong(f"{found[0]} is no character", at)
            return chr(int(digits, 16))

        def _plain(char: str, at: int) -> str:
            if char.isalnum() and char not in _SHORT:
                raise self.wrong(f"\\{char} is no known escape", at)
            return _SHORT.get(char, char)

        said = _ESCAPES.sub(meant, quoted[1:-1])
        try:  # two halves are one character
            return said.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise self.wrong("half of a surrogate pair is no character", at) from error


class Token(NamedTuple):
    kind: str
    text: str
    at: int
    value: Any = None


def tokens(source: Source, notation: re.Pattern[str]) -> Iterator[Token]:
    """As the named groups of `notation` say; "blank" is left out, and behind "json" a JSON value
    is read. Ends with one of kind "end"."""
    at, text = 0, source.text
    while at < len(text):
        found = notation.match(text, at)
        if found is None:
            raise source.wrong(f"{text[at : at + 20].splitlines()[0]!r} is not understood", at)
        kind, begin, at = str(found.lastgroup), at, found.end()
        if kind == "json":
            value, at = decode(text, found.end(), "grammar")
            yield Token(kind, "%json", begin, value)
        elif kind != "blank":
            yield Token(kind, found[0], begin)
    yield Token("end", "the end", at)


class Parser:
    """Recursive descent over tokens; `atom` says what a token of the notation's own kinds is."""

    def __init__(
        self,
        source: Source,
        notation: re.Pattern[str],
        atom: Callable[[Token], Tree | None],
        head: Callable[[Token], str],
    ) -> None:
        self.source = source
        self._tokens = list(tokens(source, notation))
        self._next = 0
        self._depth = 0
        self._atom_of = atom
        self._name_of = head

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def advance(self) -> Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def take(self, text: str) -> bool:
        """Whether this sign was next; then it was read."""
        found = self.token.kind == "sign" and self.token.text == text
        self._next += found
        return found

    def wrong(self, message: str) -> RequestError:
        return self.source.wrong(message, self.token.at)

    def definition(self, into: dict[str, Definition]) -> None:
        """Reads `name: body` or however it is written."""
        head = self.advance()
        name = self._name_of(head)
        if name in into:
            raise self.source.wrong(f"{name} is defined twice", head.at)
        into[name] = Definition(self.either(), head.at)

    def either(self) -> Tree:
        options = [self._both()]
        while self.take("|"):
            options.append(self._both())
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _both(self) -> Tree:
        parts = [self._sequence()]
        while self.take("&"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _sequence(self) -> Tree:
        parts = []
        while (part := self._atom()) is not None:
            parts.append(self._repeated(part))
            if self.token.kind == "alias":
                self.advance()
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Tree) -> Tree:
        counts = self._repetition()
        if counts is None:
            return part
        if self._repetition() is not None:
            raise self.wrong("a repetition behind a repetition; use parentheses")
        return Times(part, *counts)

    def _repetition(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return counts
        return self._counts(self.advance()) if self.token.kind == "count" else None

    def _counts(self, token: Token) -> tuple[int, int | None]:
        numbers = [int(digits) for digits in re.findall(r"[0-9]{1,9}", token.text)]
        if not numbers or max(numbers) > MAX_COUNT:
            raise self.source.wrong(f"a count must be at most {MAX_COUNT}", token.at)
        if len(numbers) == 2:
            if numbers[0] > numbers[1]:
                raise self.source.wrong("counts out of order", token.at)
            return numbers[0], numbers[1]
        _, comma, behind = token.text.partition(",")
        if not comma:
            return numbers[0], numbers[0]
        return (0, numbers[0]) if re.search("[0-9]", behind) else (numbers[0], None)

    def _atom(self) -> Tree | None:
        at = self.token.at
        if self.take("("):
            return self._group(at, ")")
        if self.take("["):
            return Times(self._group(at, "]"), 0, 1)
        if self.take("~"):
            self._deeper(at)
            part = self._atom()
            self._depth -= 1
            if part is None:
                raise self.source.wrong("~ of nothing", at)
            return Not(part, at)
        if self.token.kind == "text":
            return self._text()
        found = self._atom_of(self.token)
        self._next += found is not None
        return found

    def _deeper(self, at: int) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.source.wrong(f"more than {MAX_NESTING} groups in groups", at)

    def _group(self, at: int, close: str) -> Tree:
        self._deeper(at)
        body = self.either()
        if not self.take(close):
            raise self.wrong(f"{self.token.text[:40]!r} where | or {close} should be")
        self._depth -= 1
        return body

    def _text(self) -> Tree:
        token = self.advance()
        low = self._said(token)
        if not self.take(".."):
            return Text(low, token.text.endswith("i"))
        if self.token.kind != "text":
            raise self.wrong("a text must be behind ..")
        high = self._said(self.advance())
        if len(low) != 1 or len(high) != 1 or low > high:
            raise self.source.wrong("a range is of two characters in order", token.at)
        return Span(low, high)

    def _said(self, token: Token) -> str:
        return self.source.unquoted(token.text.removesuffix("i"), token.at)


def names(tree: Tree) -> Iterator[Name]:
    """All that a tree refers to."""
    if isinstance(tree, Name):
        yield tree
    elif isinstance(tree, Sequence | Either | Both):
        for part in tree.parts:
            yield from names(part)
    elif isinstance(tree, Not | Times):
        yield from names(tree.part)


def check_defined(source: Source, trees: Mapping[str, Definition]) -> None:
    for definition in trees.values():
        for name in names(definition.body):
            if name.name not in trees:
                raise source.wrong(f"{name.name} is not defined", name.at)
