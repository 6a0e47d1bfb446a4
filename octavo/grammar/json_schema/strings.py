"""How JSON spells a string: from an expression over its characters to one over what is written.

A character is written as it is, or with an escape where JSON needs one: ", \\ and controls. So a
character has spellings of its own, none the beginning of another's, and the spelling of a union,
an intersection or a complement is that of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.grammar.regex import (
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Kind,
    Range,
    Regex,
    both,
    chars,
    complement,
    concat,
    one_of,
    repeat,
    text,
    union,
    without,
)

_ESCAPED = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
_SHORT = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}
_QUOTE = text('"')


def quoted(value: Regex) -> Regex:
    """JSON strings whose characters match `value`."""
    return concat(_QUOTE, _spelled(value), _QUOTE)


def not_in(strings: Regex) -> Regex:
    """All other strings."""
    if strings == ANY_TEXT:
        return NOTHING
    if strings.kind == Kind.BOTH and len(strings.parts) == 2:
        one, other = sorted(strings.parts, key=lambda part: part != ANY_TEXT)
        if one == ANY_TEXT and other.kind == Kind.NOT:  # twice is not at all
            return other.parts[0]
    return ANY_TEXT if strings == NOTHING else complement(strings)


def of_length(least: int, most: int | None) -> Regex:
    """Strings of this many characters."""
    return repeat(chars(((0, 0x10FFFF),)), least, most)


def _spelled(value: Regex) -> Regex:
    if value == ANY_TEXT:
        return _ANY
    if value.kind == Kind.CONCAT:  # a long chain on the right
        parts = []
        while value.kind == Kind.CONCAT:
            parts.append(value.parts[0])
            value = value.parts[1]
        return concat(*(_spelled(part) for part in (*parts, value)))
    if value.kind in (Kind.CHARS, Kind.BYTES):
        return _characters(value.ranges)
    if value.kind == Kind.UNION:
        return union(*(_spelled(part) for part in value.parts))
    if value.kind == Kind.BOTH:
        return both(*(_spelled(part) for part in value.parts))
    if value.kind == Kind.REPEAT:
        return repeat(_spelled(value.parts[0]), value.least, value.most)
    if value.kind == Kind.NOT:
        return both(_ANY, complement(_spelled(value.parts[0])))
    return EMPTY if value.kind == Kind.EMPTY else NOTHING


def _characters(ranges: Sequence[Range]) -> Regex:
    plain = chars(without(ranges, _ESCAPED))
    codes = [
        code
        for low, high in _ESCAPED
        for begin, end in ranges
        for code in range(max(low, begin), min(high, end) + 1)
    ]
    return union(plain, _escapes(codes)) if codes else plain


def _escapes(codes: Sequence[int]) -> Regex:
    """Short ones where there are, else \\u00XX."""
    ways = [one_of("".join(_SHORT[code] for code in codes if code in _SHORT))]
    for high in (0, 1):
        low = "".join(f"{c % 16:x}" for c in codes if c not in _SHORT and c // 16 == high)
        ways.append(concat(text(f"u00{high}"), one_of(low + low.upper())))
    return concat(text("\\"), union(*ways))


_ANY = repeat(_characters(((0, 0x10FFFF),)))
