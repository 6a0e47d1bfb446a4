"""Regular expressions with intersection and complement, over the bytes of UTF-8 text.

They are matched by derivatives (Brzozowski, "Derivatives of Regular Expressions", 1964): what may
follow a byte is a regular expression again. So intersection and complement cost nothing special,
and a set of expressions that look alike is one automaton.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property

from octavo.base.errors import RequestError
from octavo.grammar.utf8 import SURROGATES, UNICODE, byte_ranges

MAX_SEARCHED = 1_000  # states of an intersection or complement, for its shortest text
Range = tuple[int, int]  # code points or bytes, both ends included


class Kind(IntEnum):
    NOTHING = 0  # no text at all
    EMPTY = 1  # the empty text
    BYTES = 2  # one byte of ranges
    CHARS = 3  # one character of ranges
    CONCAT = 4
    UNION = 5
    BOTH = 6
    NOT = 7  # of all strings of bytes
    REPEAT = 8


class Regex:
    """An expression; equal ones are equal objects to `==` and in dicts. Made by the functions
    below, which bring it into one form."""

    __slots__ = (
        "__dict__",
        "_hash",
        "kind",
        "least",
        "most",
        "nullable",
        "parts",
        "ranges",
        "size",
    )

    def __init__(
        self,
        kind: Kind,
        nullable: bool,
        parts: tuple[Regex, ...] = (),
        ranges: tuple[Range, ...] = (),
        least: int = 0,
        most: int | None = None,
    ) -> None:
        self.kind = kind
        self.nullable = nullable  # matches the empty text
        self.parts = parts
        self.ranges = ranges
        self.least = least  # of a repetition
        self.most = most  # None: any number
        self.size: int = 1 + sum(part.size for part in parts)  # each as often as it stands there
        self._hash = hash((kind, parts, ranges, least, most))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Regex) or self._hash != other._hash:
            return False
        return self.kind == other.kind and self._fields == other._fields

    @property
    def _fields(self) -> tuple[object, ...]:
        return self.parts, self.ranges, self.least, self.most

    @cached_property
    def splits(self) -> frozenset[int]:
        """Bytes at which what may follow can change: between two neighbours of these, every byte
        has the same derivative."""
        if self.kind in (Kind.NOTHING, Kind.EMPTY):
            return frozenset()
        if self.kind == Kind.BYTES:
            return frozenset(edge for low, high in self.ranges for edge in (low, high + 1))
        if self.kind == Kind.CHARS:
            return self._spelled.splits
        parts: Iterable[Regex] = self.parts
        if self.kind == Kind.CONCAT:  # as far as the first that cannot be empty
            parts = self.parts if self.parts[0].nullable else self.parts[:1]
        return frozenset[int]().union(*(part.splits for part in parts))

    @property
    def representatives(self) -> list[int]:
        """A byte of each range that `splits` make."""
        return sorted(byte for byte in self.splits | {0} if byte < 256)

    @cached_property
    def is_plain(self) -> bool:
        """Without intersection and complement: then it matches some text, unless it is NOTHING."""
        if self.kind in (Kind.BOTH, Kind.NOT):
            return False
        return all(part.is_plain for part in self.parts)

    @cached_property
    def _spelled(self) -> Regex:
        """Characters as their bytes."""
        return union(
            *(concat(*(byte_of((span,)) for span in spans)) for spans in byte_ranges(self.ranges))
        )

    def derivative(self, byte: int) -> Regex:
        """What may follow `byte`."""
        kind, parts = self.kind, self.parts
        if kind in (Kind.NOTHING, Kind.EMPTY):
            return NOTHING
        if kind == Kind.BYTES:
            return EMPTY if any(low <= byte <= high for low, high in self.ranges) else NOTHING
        if kind == Kind.CHARS:
            return self._spelled.derivative(byte)
        if kind == Kind.CONCAT:
            first, rest = parts
            after = concat(first.derivative(byte), rest)
            return union(after, rest.derivative(byte)) if first.nullable else after
        if kind == Kind.UNION:
            return union(*(part.derivative(byte) for part in parts))
        if kind == Kind.BOTH:
            return both(*(part.derivative(byte) for part in parts))
        if kind == Kind.NOT:
            return _not(parts[0].derivative(byte))
        most = None if self.most is None else self.most - 1
        return concat(parts[0].derivative(byte), repeat(parts[0], max(self.least - 1, 0), most))

    @cached_property
    def shortest(self) -> bytes | None:
        """A shortest text that it matches; None where there is none.

        Raises:
            RequestError: intersections and complements in it are too large to search.
        """
        kind = self.kind
        if kind == Kind.NOTHING:
            return None
        if kind == Kind.EMPTY:
            return b""
        if kind == Kind.BYTES:
            return bytes((_liked(self.ranges),))
        if kind == Kind.CHARS:
            return chr(_liked(self.ranges)).encode()
        if kind in (Kind.BOTH, Kind.NOT):
            return _searched(self)
        texts = [part.shortest for part in self.parts]
        if kind == Kind.UNION:
            return min((t for t in texts if t is not None), key=len, default=None)
        if kind == Kind.REPEAT:
            return b"" if not self.least else None if texts[0] is None else texts[0] * self.least
        return None if None in texts else b"".join(t for t in texts if t is not None)

    def matches(self, data: bytes) -> bool:
        """Whether it matches all of `data`. For tests and small texts: see `Automaton`."""
        left = self
        for byte in data:
            left = left.derivative(byte)
        return left.nullable


NOTHING = Regex(Kind.NOTHING, False)
EMPTY = Regex(Kind.EMPTY, True)


def byte_of(ranges: Iterable[Range]) -> Regex:
    """One byte of these ranges."""
    merged = merge(ranges)
    return Regex(Kind.BYTES, False, ranges=merged) if merged else NOTHING


def chars(ranges: Iterable[Range]) -> Regex:
    """One character whose code point is in these ranges; surrogates are no characters."""
    merged = without(merge(ranges), SURROGATES)
    return Regex(Kind.CHARS, False, ranges=merged) if merged else NOTHING


def one_of(characters: str) -> Regex:
    """One of these characters."""
    return chars((ord(c), ord(c)) for c in characters)


def none_of(characters: str) -> Regex:
    """Any character but these."""
    return chars(without(UNICODE, merge((ord(c), ord(c)) for c in characters)))


def text(value: str) -> Regex:
    """This text."""
    return concat(*(chars(((ord(c), ord(c)),)) for c in value))


def concat(*parts: Regex) -> Regex:
    """One behind the other."""
    whole = EMPTY
    for part in reversed(parts):
        whole = _join(part, whole)
    return whole


def _join(first: Regex, rest: Regex) -> Regex:
    if first.kind == Kind.NOTHING or rest.kind == Kind.NOTHING:
        return NOTHING
    if first.kind == Kind.EMPTY:
        return rest
    if rest.kind == Kind.EMPTY:
        return first
    if first.kind == Kind.CONCAT:  # so that the first part of one never is one
        return _join(first.parts[0], _join(first.parts[1], rest))
    return Regex(Kind.CONCAT, first.nullable and rest.nullable, (first, rest))


def union(*parts: Regex) -> Regex:
    """Any of these."""
    found = dict.fromkeys(_flat(Kind.UNION, parts))
    found.pop(NOTHING, None)
    if ANYTHING in found:
        return ANYTHING
    if EMPTY in found and any(p.nullable for p in found if p is not EMPTY):
        found.pop(EMPTY)
    merged = _merged_sets(found)
    if len(merged) < 2:
        return merged[0] if merged else NOTHING
    ordered = tuple(sorted(merged, key=hash))
    return Regex(Kind.UNION, any(p.nullable for p in ordered), ordered)


def both(*parts: Regex) -> Regex:
    """What all of these match."""
    found = dict.fromkeys(_flat(Kind.BOTH, parts))
    found.pop(ANYTHING, None)
    if NOTHING in found:
        return NOTHING
    if EMPTY in found:
        return EMPTY if all(part.nullable for part in found) else NOTHING
    if len(found) < 2:
        return next(iter(found), ANYTHING)
    ordered = tuple(sorted(found, key=hash))
    return Regex(Kind.BOTH, all(p.nullable for p in ordered), ordered)


def complement(part: Regex) -> Regex:
    """Any text but what `part` matches."""
    return both(ANY_TEXT, _not(part))


def repeat(part: Regex, least: int = 0, most: int | None = None) -> Regex:
    """`least` to `most` times `part`; None: any number."""
    if most is not None and most < least:
        return NOTHING
    if most == 0 or part.kind == Kind.EMPTY:
        return EMPTY
    if part.kind == Kind.NOTHING:
        return NOTHING if least else EMPTY
    if (least, most) == (1, 1):
        return part
    if part.kind == Kind.REPEAT and part.least <= 1 and part.most is None and most is None:
        return repeat(part.parts[0], least * part.least)
    if part.nullable:
        least = 0
    return Regex(Kind.REPEAT, least == 0, (part,), least=least, most=most)


def optional(part: Regex) -> Regex:
    return union(EMPTY, part)


def _not(part: Regex) -> Regex:
    if part.kind == Kind.NOT:
        return part.parts[0]
    return Regex(Kind.NOT, not part.nullable, (part,))


def _flat(kind: Kind, parts: Sequence[Regex]) -> Iterator[Regex]:
    for part in parts:
        if part.kind == kind:
            yield from part.parts
        else:
            yield part


def _merged_sets(parts: Iterable[Regex]) -> list[Regex]:
    """All sets of one byte, and all of one character, in one."""
    others = [p for p in parts if p.kind not in (Kind.BYTES, Kind.CHARS)]
    sets = [
        make(span for p in parts if p.kind == kind for span in p.ranges)
        for kind, make in ((Kind.BYTES, byte_of), (Kind.CHARS, chars))
    ]
    return [*others, *(one for one in sets if one.kind != Kind.NOTHING)]


def _liked(ranges: Sequence[Range]) -> int:
    """The character or byte of these ranges that is the easiest to read."""
    for wanted in b"a0 ":
        if any(low <= wanted <= high for low, high in ranges):
            return wanted
    return ranges[0][0]


def _searched(regex: Regex) -> bytes | None:
    """The shortest text by breadth-first search. What is met on the way to it knows its own."""
    before: dict[Regex, tuple[Regex, int] | None] = {regex: None}
    for found in before if regex.nullable else _reached(regex, before):
        if found.nullable:
            return _traced(found, before)
    return None


def _reached(regex: Regex, before: dict[Regex, tuple[Regex, int] | None]) -> Iterator[Regex]:
    """What is left of it after some text, shorter texts first; `before` gets where it came from."""
    waiting = deque((regex,))
    while waiting:
        left = waiting.popleft()
        for byte in left.representatives:
            after = left.derivative(byte)
            if after in before or after.kind == Kind.NOTHING:
                continue
            if len(before) >= MAX_SEARCHED:
                raise RequestError(
                    f"a regular expression needs more than {MAX_SEARCHED} states", "regex"
                )
            before[after] = (left, byte)
            yield after
            waiting.append(after)


def _traced(found: Regex, before: dict[Regex, tuple[Regex, int] | None]) -> bytes:
    text = b""
    while (step := before[found]) is not None:
        found, byte = step
        text = bytes((byte,)) + text
        found.__dict__["shortest"] = text
    return text


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """In order, and apart."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        elif low <= high:
            merged.append((low, high))
    return tuple(merged)


def without(ranges: Sequence[Range], holes: Sequence[Range]) -> tuple[Range, ...]:
    """What is left of merged `ranges` outside merged `holes`."""
    left = []
    for low, high in ranges:
        for begin, end in holes:
            if end < low or begin > high:
                continue
            if begin > low:
                left.append((low, begin - 1))
            low = end + 1
        if low <= high:
            left.append((low, high))
    return tuple(left)


ANYTHING = _not(NOTHING)  # all strings of bytes
ANY_CHAR = chars(UNICODE)
ANY_TEXT = repeat(ANY_CHAR)
