"""Text that may be anything, up to where a marker says that it is over."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.grammar.regex import ANY_CHAR, ANY_TEXT, Regex, both, complement, concat, repeat, union
from octavo.grammar.regex import text as text_of


def text_without(markers: Iterable[str]) -> Regex:
    """Any text in which none of them is."""
    return complement(concat(ANY_TEXT, _any(markers), ANY_TEXT))


def text_up_to(marker: str, markers: Iterable[str] = ()) -> Regex:
    """Any text that ends with `marker`, and has neither it nor one of `markers` before.

    Where a marker must be found in free text, both are one lexeme: alone, the text would go on as
    long as the marker is not whole, and take its beginning.
    """
    return ends_with(ANY_TEXT, marker, markers)


def ends_with(content: Regex, marker: str, markers: Iterable[str] = ()) -> Regex:
    """`content` and `marker`, which is whole at the end for the first time."""
    earlier = concat(ANY_TEXT, _any((marker, *markers)), repeat(ANY_CHAR, 1))
    return both(concat(content, text_of(marker)), complement(earlier))


def _any(markers: Iterable[str]) -> Regex:
    return union(*map(text_of, markers))
