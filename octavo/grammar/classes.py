"""Sets of characters by name: `\\d`, `\\p{Lu}` and the like, and the same letter in other cases."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby

from octavo.grammar.regex import Range, merge, without
from octavo.grammar.utf8 import UNICODE

_DIGITS = ((0x30, 0x39),)
_WORD = (*_DIGITS, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE = (  # WhiteSpace and LineTerminator of ECMAScript
    *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_LINE_ENDS = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_NAMED = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
# Where code points are assigned; outside, planes 15 and 16 are private and the rest is nothing.
_ASSIGNED = ((0, 0x33FFF), (0xE0000, 0xE0FFF))
_PRIVATE = ((0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))
_LAST_CASED = 0x1F000  # no letter behind it has two cases
_LONG_NAMES = {
    "Letter": "L",
    "Cased_Letter": "LC",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Private_Use": "Co",
    "Unassigned": "Cn",
}


def named_class(letter: str) -> tuple[Range, ...]:
    """Of `d`, `w`, `s`, their opposites `D`, `W`, `S`, and `.`: all that ends no line."""
    if letter == ".":
        return without(UNICODE, _LINE_ENDS)
    found = _NAMED[letter.lower()]
    return without(UNICODE, found) if letter.isupper() else found


def property_class(name: str) -> tuple[Range, ...] | None:
    """Of a general category of Unicode, `Any` or `ASCII`; None: it is not known here."""
    if name == "Any":
        return UNICODE
    if name == "ASCII":
        return ((0, 0x7F),)
    key, equals, value = name.partition("=")
    if equals and key not in ("General_Category", "gc"):
        return None
    name = value if equals else name
    wanted = _LONG_NAMES.get(name, name)
    members = ("Lu", "Ll", "Lt") if wanted == "LC" else (wanted,)
    spans = [
        span
        for category, ranges in _categories().items()
        if category.startswith(members)
        for span in ranges
    ]
    return merge(spans) if spans and wanted else None


@cache
def _categories() -> Mapping[str, list[Range]]:
    found: dict[str, list[Range]] = {"Co": list(_PRIVATE)}
    for low, high in _ASSIGNED:
        for category, run in groupby(range(low, high + 1), lambda c: unicodedata.category(chr(c))):
            codes = list(run)
            found.setdefault(category, []).append((codes[0], codes[-1]))
    found.pop("Cs")  # surrogates are no characters
    found["Cn"].extend(without(UNICODE, merge((*_ASSIGNED, *_PRIVATE))))
    return found


def fold(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """With each letter in its other cases."""
    spans = merge(ranges)
    more = [
        (other, other)
        for alike in _cases()
        if any(low <= code <= high for code in alike for low, high in spans)
        for other in alike
    ]
    return merge((*spans, *more))


@cache
def _cases() -> list[tuple[int, ...]]:
    """Letters that differ in case only, such as s, S and the long s."""
    alike: dict[str, set[int]] = {}
    for code in range(_LAST_CASED):
        char = chr(code)
        folded = char.casefold()
        if folded != char:
            alike.setdefault(folded, set()).add(code)
            if len(folded) == 1:
                alike[folded].add(ord(folded))
    return [tuple(codes) for codes in alike.values() if len(codes) > 1]
