"""The syntax of regular expressions that requests write: ECMAScript's, with what Rust and Python
write alike.

`\\d`, `\\w` and their opposites know ASCII, `\\s` all of ECMAScript's white space, and `.` is any
character that ends no line. What cannot be said by a regular expression is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.base.errors import RequestError
from octavo.grammar.classes import fold, named_class, property_class
from octavo.grammar.regex import (
    ANY_CHAR,
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Range,
    Regex,
    both,
    chars,
    complement,
    concat,
    merge,
    repeat,
    union,
    without,
)
from octavo.grammar.utf8 import SURROGATES, UNICODE

MAX_LENGTH = 2**16  # characters of a pattern
MAX_NESTING = 64  # groups in groups
MAX_COUNT = 10_000  # of a repetition
_COUNTS = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
_GROUP_NAME = re.compile(r"\?P?<[A-Za-z_$][\w$]*>", re.ASCII)
_MODIFIERS = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_REFUSED_GROUPS = {
    "?<=": "lookbehind",
    "?<!": "lookbehind",
    "?>": "an atomic group",
    "?P=": "a backreference",
    "?P>": "a call of a group",
    "?(": "a condition",
    "?#": "a comment",
}


def parse_pattern(pattern: str, anchored: bool = False, flags: str = "") -> Regex:
    """The texts that match `pattern`.

    Args:
        anchored: the whole text must match; else any text does that has a match somewhere.
        flags: of the letters "i" (either case), "s" (`.` is any character) and "u" (no meaning).

    Raises:
        RequestError: the syntax is wrong or not supported; it says what and where.
    """
    part = _Parser(pattern, flags).parse()
    if anchored:
        return _behind(part, EMPTY, True)
    at_start, later = _behind(part, ANY_TEXT, True), _behind(part, ANY_TEXT, False)
    if at_start == later:
        return concat(ANY_TEXT, later)
    return union(at_start, concat(repeat(ANY_CHAR, 1), later))


@dataclass(frozen=True, slots=True)
class _Begin:
    """`^`"""

    position: int


@dataclass(frozen=True, slots=True)
class _End:
    """`$`"""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """`(?=...)`, `(?!...)`"""

    body: _Part
    negative: bool


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Part, ...]


@dataclass(frozen=True, slots=True)
class _Either:
    parts: tuple[_Part, ...]


# What looks at its surroundings stays a tree; all else is an expression at once.
_Part = Regex | _Begin | _End | _Ahead | _Sequence | _Either


def _sequence(parts: Sequence[_Part]) -> _Part:
    plain = [part for part in parts if isinstance(part, Regex)]
    return concat(*plain) if len(plain) == len(parts) else _Sequence(tuple(parts))


def _either(parts: Sequence[_Part]) -> _Part:
    plain = [part for part in parts if isinstance(part, Regex)]
    return union(*plain) if len(plain) == len(parts) else _Either(tuple(parts))


def _behind(part: _Part, rest: Regex, at_start: bool | None) -> Regex:
    """`part` and then `rest`, which is all that follows to the end of the text.

    `at_start`: nothing, something, or (None) one knows not what lies before it.
    """
    if isinstance(part, Regex):
        return concat(part, rest)
    if isinstance(part, _Begin):
        if at_start is None:
            raise _error("^ behind what may be empty is not supported", part.position)
        return rest if at_start else NOTHING
    if isinstance(part, _End):
        return both(EMPTY, rest)
    if isinstance(part, _Ahead):
        wanted = _behind(part.body, ANY_TEXT, at_start)
        return both(rest, complement(wanted) if part.negative else wanted)
    if isinstance(part, _Either):
        return union(*(_behind(option, rest, at_start) for option in part.parts))
    known = [at_start]
    for one in part.parts:
        known.append(_still_at_start(known[-1], *_widths(one)))
    for one, at in zip(reversed(part.parts), reversed(known[:-1]), strict=True):
        rest = _behind(one, rest, at)
    return rest


def _still_at_start(at_start: bool | None, empty: bool, wide: bool) -> bool | None:
    if not empty:
        return False
    return None if wide and at_start else at_start


def _widths(part: _Part) -> tuple[bool, bool]:
    """Whether it may match the empty text, and whether more than it."""
    if isinstance(part, Regex):
        return part.nullable, part != EMPTY
    if isinstance(part, _Sequence | _Either):
        empty, wide = zip(*map(_widths, part.parts), strict=True)
        return (all if isinstance(part, _Sequence) else any)(empty), any(wide)
    return True, False


def _error(message: str, position: int) -> RequestError:
    return RequestError(f"regex: {message} (at position {position})", "regex")


class _Parser:
    """Recursive descent; `at` is the position in `pattern`."""

    def __init__(self, pattern: str, flags: str) -> None:
        if len(pattern) > MAX_LENGTH:
            raise _error(f"{len(pattern)} characters; at most {MAX_LENGTH}", MAX_LENGTH)
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.flags = frozenset[str]()
        self._set_flags(flags, "")

    def parse(self) -> _Part:
        part = self._alternatives()
        if self.at < len(self.pattern):
            raise self._wrong("a ) that closes nothing")
        return part

    def _wrong(self, message: str) -> RequestError:
        return _error(message, self.at)

    def _peek(self, length: int = 1) -> str:
        return self.pattern[self.at : self.at + length]

    def _take(self, wanted: str) -> bool:
        found = self.pattern.startswith(wanted, self.at)
        self.at += len(wanted) * found
        return found

    def _next(self, what: str) -> str:
        if self.at >= len(self.pattern):
            raise self._wrong(f"the end, where {what} should be")
        self.at += 1
        return self.pattern[self.at - 1]

    def _set_flags(self, on: str, off: str) -> None:
        for flag in on + off:
            if flag not in "isu":
                raise self._wrong(f"the flag {flag!r} is not supported")
        self.flags = (self.flags | set(on)) - set(off)

    def _alternatives(self) -> _Part:
        options = [self._alternative()]
        while self._take("|"):
            options.append(self._alternative())
        return _either(options)

    def _alternative(self) -> _Part:
        parts: list[_Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _sequence(parts)

    def _repeated(self, part: _Part) -> _Part:
        begin = self.at
        counts = self._quantifier()
        if counts is None:
            return part
        if self._take("+"):
            raise _error("a possessive quantifier is not supported", begin)
        self._take("?")  # lazy: the same texts match
        if isinstance(part, _Begin | _End | _Ahead):
            raise _error("nothing to repeat", begin)
        after = self.at
        if self._quantifier() is not None:
            raise _error("a quantifier behind a quantifier", after)
        if isinstance(part, Regex):
            return repeat(part, *counts)
        if counts == (0, 1):
            return _either((EMPTY, part))
        if counts == (1, 1):
            return part
        raise _error("repeating a group with ^, $ or lookahead in it is not supported", begin)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return counts
        found = _COUNTS.match(self.pattern, self.at)
        if found is None or found[0] in ("{}", "{,}"):
            return None  # { is a character here
        low, comma, high = found.groups()
        if max(self._count(low), self._count(high)) > MAX_COUNT:
            raise self._wrong(f"a count of more than {MAX_COUNT}")
        least = self._count(low)
        most = self._count(high) if high else None if comma else least
        if most is not None and most < least:
            raise self._wrong("counts out of order")
        self.at = found.end()
        return least, most

    @staticmethod
    def _count(digits: str) -> int:
        return int(digits.lstrip("0")[:6] or 0)  # six are too many already

    def _atom(self) -> _Part:
        begin = self.at
        char = self._next("a character")
        if char == "(":
            return self._group()
        if char == "[":
            return chars(self._class())
        if char == "^":
            return _Begin(begin)
        if char == "$":
            return _End()
        if char == ".":
            return ANY_CHAR if "s" in self.flags else chars(named_class("."))
        if char in "*+?":
            raise _error("nothing to repeat", begin)
        if char == "\\":
            return self._escaped()
        return self._folded(self._literal(char))

    def _folded(self, ranges: Sequence[Range]) -> Regex:
        return chars(fold(ranges) if "i" in self.flags else ranges)

    def _literal(self, char: str) -> tuple[Range, ...]:
        code = ord(char)
        if SURROGATES[0][0] <= code <= SURROGATES[0][1]:
            raise self._wrong(f"\\u{code:04x} alone is no character")
        return ((code, code),)

    # Groups, behind the (.

    def _group(self) -> _Part:
        begin, flags = self.at - 1, self.flags
        for syntax, name in _REFUSED_GROUPS.items():
            if self.pattern.startswith(syntax, self.at):
                raise _error(f"{name} (({syntax}) is not supported", begin)
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise _error(f"more than {MAX_NESTING} groups in groups", begin)
        ahead = self._peek(2) if self._peek(2) in ("?=", "?!") else ""
        self.at += len(ahead)
        if not ahead and self._opening(begin):
            self.depth -= 1
            return EMPTY  # flags for what follows in the group around
        body = self._alternatives()
        if not self._take(")"):
            raise _error("a ( that nothing closes", begin)
        self.depth -= 1
        self.flags = flags
        return _Ahead(body, ahead == "?!") if ahead else body

    def _opening(self, begin: int) -> bool:
        """Reads up to where the body begins; True: there is none, as in `(?i)`."""
        if self._peek() != "?":
            return False
        found = _GROUP_NAME.match(self.pattern, self.at)
        if found is not None:
            self.at = found.end()
            return False
        found = _MODIFIERS.match(self.pattern, self.at)
        if found is None:
            raise _error(f"({self._peek(3)} is no known group", begin)
        self._set_flags(found[1], found[2] or "")
        self.at = found.end()
        return found[3] == ")"

    # Escapes, behind the \.

    def _escaped(self) -> _Part:
        begin = self.at - 1
        char = self._peek()
        if char in ("A", "z", "Z"):
            self.at += 1
            return _Begin(begin) if char == "A" else _End()
        if char in ("b", "B"):
            raise _error(f"\\{char} (a word's edge) is not supported", begin)
        if char == "k" or char in tuple("123456789"):
            raise _error(f"a backreference (\\{char}) is not supported", begin)
        _, ranges = self._escape()
        return self._folded(ranges)

    def _escape(self) -> tuple[bool, tuple[Range, ...]]:
        """Whether it is one character, and which one; or a class of them."""
        begin = self.at - 1
        char = self._next("an escape")
        if char in "dDwWsS":
            return False, named_class(char)
        if char in "pP":
            return False, self._property(char == "P", begin)
        if char == "0" and self._peek().isdigit():
            raise _error("octal escapes are not supported", begin)
        if char in _CONTROL:
            return True, self._literal(_CONTROL[char])
        if char == "c" and self._peek().isascii() and self._peek().isalpha():
            return True, self._literal(chr(ord(self._next("a letter")) % 32))
        if char in "xuU":
            return True, self._literal(self._code_point(char, begin))
        if char.isalnum() or char == "_":
            raise _error(f"\\{char} is no known escape", begin)
        return True, self._literal(char)

    def _code_point(self, kind: str, begin: int) -> str:
        if self._take("{"):
            end = self.pattern.find("}", self.at, self.at + 9)
            code = self._hex(end - self.at, begin) if end >= 0 else -1
            self.at += 1
        else:
            code = self._hex({"x": 2, "u": 4, "U": 8}[kind], begin)
        if 0xD800 <= code < 0xDC00 and self._take("\\u"):  # half of a pair
            low = self._hex(4, begin)
            if not 0xDC00 <= low < 0xE000:
                raise _error(f"\\u{code:04x} alone is no character", begin)
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        if not 0 <= code <= 0x10FFFF:
            raise _error(f"\\{kind} with a code that is no character's", begin)
        return chr(code)

    def _hex(self, digits: int, begin: int) -> int:
        found = self._peek(digits)
        if digits < 1 or len(found) < digits or not re.fullmatch("[0-9a-fA-F]+", found):
            raise _error("an escape that needs hexadecimal digits", begin)
        self.at += digits
        return int(found, 16)

    def _property(self, negative: bool, begin: int) -> tuple[Range, ...]:
        name = self._next("a property")
        if name == "{":
            end = self.pattern.find("}", self.at)
            if end < 0:
                raise _error("a \\p{ that nothing closes", begin)
            name, self.at = self.pattern[self.at : end], end + 1
        found = property_class(name)
        if found is None:
            raise _error(f"\\p{{{name[:40]}}} is not supported: only general categories", begin)
        return without(UNICODE, found) if negative else found

    # Classes, behind the [.

    def _class(self) -> tuple[Range, ...]:
        begin = self.at - 1
        negative = self._take("^")
        if self._peek() == "]":
            raise _error("an empty class; write \\] for a ] in it", begin)
        ranges: list[Range] = []
        while not self._take("]"):
            if self.at >= len(self.pattern):
                raise _error("a [ that nothing closes", begin)
            ranges.extend(self._class_item())
        found = merge(ranges)
        if "i" in self.flags:
            found = fold(found)
        return without(UNICODE, found) if negative else found

    def _class_item(self) -> tuple[Range, ...]:
        begin = self.at
        one, low = self._class_atom()
        if self._peek() != "-" or self._peek(2) in ("-", "-]"):
            return low
        self.at += 1
        other, high = self._class_atom()
        if not (one and other):  # as in [\w-.]: the - is one of them
            return (*low, *self._literal("-"), *high)
        if high[0][0] < low[0][0]:
            raise _error("a range out of order", begin)
        return ((low[0][0], high[0][0]),)

    def _class_atom(self) -> tuple[bool, tuple[Range, ...]]:
        if re.compile(r"\[:\^?\w*:\]").match(self.pattern, self.at):
            raise self._wrong("[:name:] is not supported")
        char = self._next("the rest of a class")
        if char != "\\":
            return True, self._literal(char)
        if self._take("b"):
            return True, self._literal("\b")
        if self._take("-"):
            return True, self._literal("-")
        return self._escape()
