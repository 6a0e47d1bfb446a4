"""Which bytes spell which characters in UTF-8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

UNICODE = ((0, 0xD7FF), (0xE000, 0x10FFFF))  # code points that are characters
SURROGATES = ((0xD800, 0xDFFF),)
_LAST_OF_LENGTH = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)


def byte_ranges(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Sequences of byte ranges that together spell exactly the characters in `ranges`.

    Each range is cut where the number of bytes changes, and then until all but one byte of its
    ends are equal or span everything (Thompson, "UTF-8 automata", as in RE2).
    """
    for low, high in ranges:
        for last in _LAST_OF_LENGTH:
            if low <= high and low <= last:
                yield from _same_length(low, min(high, last))
                low = last + 1


def _same_length(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    first, last = chr(low).encode(), chr(high).encode()
    for i in range(1, len(first)):
        mask = (1 << 6 * i) - 1  # bits of the last i bytes
        if low & ~mask == high & ~mask:
            continue
        if low & mask:
            yield from _same_length(low, low | mask)
            yield from _same_length((low | mask) + 1, high)
            return
        if high & mask != mask:
            yield from _same_length(low, (high & ~mask) - 1)
            yield from _same_length(high & ~mask, high)
            return
    yield tuple(zip(first, last, strict=True))
