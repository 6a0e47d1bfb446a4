"""Sets of numbers, as regular expressions over how JSON writes them without an exponent.

A number has many spellings ("1", "1.0", "-0"); a set holds all spellings of a number or none, so
that sets can be met, joined and turned round. Readers of JSON round to doubles: a bound that is
excluded is therefore replaced by the next double, which rounding cannot pass.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from octavo.grammar.regex import (
    EMPTY,
    NOTHING,
    Regex,
    both,
    complement,
    concat,
    one_of,
    optional,
    repeat,
    text,
    union,
)

_DIGIT = one_of("0123456789")
_FIRST = one_of("123456789")
_DIGITS = repeat(_DIGIT)
_SIGN = optional(text("-"))
_WHOLE = union(text("0"), concat(_FIRST, _DIGITS))
_ZEROS = optional(concat(text("."), repeat(text("0"), 1)))  # a fraction that is nothing
_FRACTION = optional(concat(text("."), repeat(_DIGIT, 1)))
_UNSIGNED = concat(_WHOLE, _FRACTION)
_SMALLEST = 300  # digits behind the point within which one that is not 0 reads as more than 0
_LAST_WHOLE = 2**53  # from here on every double is a whole number

NUMBER = concat(_SIGN, _UNSIGNED)
INTEGER = concat(_SIGN, _WHOLE, _ZEROS)
# One digit before the point and an exponent that no double overflows with: what programs write.
_EXPONENT = union(
    concat(optional(one_of("012")), _DIGIT, optional(_DIGIT)),
    concat(text("30"), one_of("01234567")),
)
_WITH_EXPONENT = concat(_SIGN, _DIGIT, _FRACTION, one_of("eE"), optional(one_of("+-")), _EXPONENT)
# One spelling of each number.
CANONICAL = union(
    text("0"),
    concat(_SIGN, union(concat(_FIRST, _DIGITS), concat(_WHOLE, text("."), _DIGITS, _FIRST))),
)


def spelled(numbers: Regex) -> Regex:
    """How the numbers may be written. Exponents only where any number may stand."""
    return union(NUMBER, _WITH_EXPONENT) if numbers == NUMBER else numbers


def exactly(value: Fraction) -> Regex:
    """This number, which must have an end."""
    whole, fraction = decimal(abs(value))
    tail = concat(text("." + fraction), repeat(text("0"))) if fraction else _ZEROS
    sign = text("-") if value < 0 else EMPTY if value else _SIGN
    return concat(sign, text(whole), tail)


def other_than(numbers: Regex) -> Regex:
    if numbers == NUMBER:
        return NOTHING
    return NUMBER if numbers == NOTHING else both(NUMBER, complement(numbers))


@lru_cache(maxsize=256)
def at_least(bound: Fraction, excluded: bool = False) -> Regex:
    """Numbers from `bound` on, which must have an end."""
    if bound > 0 or (excluded and not bound):
        return _above(bound, excluded)
    if excluded:
        return union(_UNSIGNED, concat(text("-"), _up_to(_neighbour(-bound, -math.inf))))
    return union(_UNSIGNED, concat(text("-"), _up_to(-bound)))


@lru_cache(maxsize=256)
def at_most(bound: Fraction, excluded: bool = False) -> Regex:
    """Numbers up to `bound`."""
    if bound < 0 or (excluded and not bound):
        return concat(text("-"), _above(-bound, excluded))
    highest = _neighbour(bound, -math.inf) if excluded else bound
    return union(_up_to(highest), concat(text("-"), _UNSIGNED))


def decimal(value: Fraction) -> tuple[str, str]:
    """Digits before and behind the point, of a number >= 0 that has an end."""
    twos, fives, rest = 0, 0, value.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    digits = str(int(value * 10**places)).rjust(places + 1, "0")
    return digits[: len(digits) - places], digits[len(digits) - places :]


def _neighbour(bound: Fraction, towards: float) -> Fraction:
    """The next double, as it is written."""
    if abs(bound) >= _LAST_WHOLE:
        return bound + (1 if towards > 0 else -1)
    return Fraction(repr(math.nextafter(float(bound), towards)))


def _above(bound: Fraction, excluded: bool) -> Regex:
    if excluded and not bound:
        behind = concat(repeat(text("0"), 0, _SMALLEST), _FIRST, _DIGITS)
        return union(concat(text("0."), behind), concat(_FIRST, _DIGITS, _FRACTION))
    return _from(_neighbour(bound, math.inf) if excluded else bound)


def _from(bound: Fraction) -> Regex:
    """Digits of a number from `bound` >= 0 on."""
    whole, fraction = decimal(bound)
    larger = union(concat(_FIRST, repeat(_DIGIT, len(whole))), *_differing(whole, 1, True))
    behind = [concat(part, _DIGITS) for part in _differing(fraction, 1, False)]
    tail = concat(text("."), union(*behind, concat(text(fraction), _DIGITS)))
    return union(concat(larger, _FRACTION), concat(text(whole), tail if fraction else _FRACTION))


def _up_to(bound: Fraction) -> Regex:
    """Digits of a number up to `bound` >= 0."""
    whole, fraction = decimal(bound)
    shorter = concat(_FIRST, repeat(_DIGIT, 0, len(whole) - 2)) if len(whole) > 1 else NOTHING
    zero = NOTHING if whole == "0" else text("0")
    smaller = union(zero, shorter, *_differing(whole, -1, True))
    behind = [concat(part, _DIGITS) for part in _differing(fraction, -1, False)]
    behind += [text(fraction[:n]) for n in range(1, len(fraction))]
    equal = concat(text(fraction), repeat(text("0"), 0 if fraction else 1))
    tail = optional(concat(text("."), union(*behind, equal)))
    return union(concat(smaller, _FRACTION), concat(text(whole), tail))


def _differing(digits: str, direction: int, whole: bool) -> list[Regex]:
    """Digits that equal these up to one, which is larger (1) or smaller (-1), and anything as long
    as these behind it if they are `whole`."""
    found = []
    for i, digit in enumerate(digits):
        others = "0123456789"[int(digit) + 1 :] if direction > 0 else "0123456789"[: int(digit)]
        if whole and i == 0:
            others = others.replace("0", "")
        if others:
            rest = len(digits) - i - 1 if whole else 0
            found.append(concat(text(digits[:i]), one_of(others), repeat(_DIGIT, rest, rest)))
    return found
