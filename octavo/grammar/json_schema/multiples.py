"""Multiples of a number, as a regular expression.

A machine reads digits and keeps the remainder; equal states are made one (Moore, 1956), then states
are taken out one by one until one expression is left (Brzozowski and McCluskey, 1963).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache

from octavo.grammar.json_schema.numbers import decimal, exactly
from octavo.grammar.regex import (
    EMPTY,
    NOTHING,
    Regex,
    both,
    concat,
    one_of,
    optional,
    repeat,
    text,
    union,
)

MAX_LISTED = 1000  # multiples within bounds that are written out one by one
_MAX_STATES = 2500
_MAX_SIZE = 4000  # parts of the expression

_WHOLE = repeat(one_of("0123456789"))
# With a point it is read as a double, which keeps so many digits and no more.
_PRECISE = repeat(one_of("0123456789."), 1, 16)

State = tuple[
    str, int, int
]  # what is read, remainder, digits behind the point (at most `places`+1)
Machine = Mapping[Hashable, Mapping[str, Hashable]]


def multiples_between(divisor: Fraction, low: Fraction, high: Fraction) -> Regex | None:
    """Multiples of `divisor` from `low` to `high`, one by one; None if they are too many."""
    first, last = math.ceil(low / divisor), math.floor(high / divisor)
    if last - first >= MAX_LISTED:
        return None
    return union(*(exactly(divisor * k) for k in range(first, last + 1)))


@lru_cache(maxsize=64)
def multiples(divisor: Fraction) -> Regex | None:
    """Numbers that `divisor` > 0 divides; None if the expression gets too large."""
    places = len(decimal(divisor)[1])
    scaled = int(divisor * 10**places)
    if scaled * (places + 2) > _MAX_STATES:
        return None
    machine, final = _machine(scaled, places)
    digits = _expression(*_smallest(machine, final))
    if digits is None:
        return None
    return concat(optional(text("-")), both(digits, union(_WHOLE, _PRECISE)))


def _machine(divisor: int, places: int) -> tuple[Machine, set[Hashable]]:
    """States and those in which a multiple was read."""
    start: State = ("start", 0, 0)
    machine: dict[Hashable, dict[str, Hashable]] = {}
    waiting, final = [start], set[Hashable]()
    while waiting:
        state = waiting.pop()
        machine[state] = dict(_steps(state, divisor, places))
        waiting.extend(s for s in machine[state].values() if s not in machine)  # type: ignore[misc]
        what, rest, behind = state
        complete = what in ("zero", "whole") or behind
        if complete and rest * 10 ** max(places - behind, 0) % divisor == 0:
            final.add(state)
    return machine, final


def _steps(state: State, divisor: int, places: int) -> Iterator[tuple[str, State]]:
    what, rest, behind = state
    if what in ("zero", "whole"):
        yield ".", ("behind", rest, 0)
    for digit in "0123456789":
        after = (rest * 10 + int(digit)) % divisor
        if what == "start":
            yield digit, ("zero" if digit == "0" else "whole", after, 0)
        elif what == "whole":
            yield digit, ("whole", after, 0)
        elif what == "behind" and behind < places:
            yield digit, ("behind", after, behind + 1)
        elif what == "behind" and digit == "0":
            yield digit, ("behind", rest, places + 1)


def _smallest(machine: Machine, final: set[Hashable]) -> tuple[Machine, set[Hashable], Hashable]:
    """The same machine with equal states in one; states that lead nowhere are left out."""
    group: dict[Hashable, Hashable] = {state: state in final for state in machine}
    count = 0
    while count != len(set(group.values())):
        count = len(set(group.values()))
        signs: dict[Hashable, int] = {}
        after = {}
        for state, steps in machine.items():
            sign = (group[state], tuple((by, group[to]) for by, to in steps.items()))
            after[state] = signs.setdefault(sign, len(signs))
        group = dict(after)
    small = {group[s]: {by: group[to] for by, to in steps.items()} for s, steps in machine.items()}
    return small, {group[s] for s in final}, group[("start", 0, 0)]


def _expression(machine: Machine, final: set[Hashable], start: Hashable) -> Regex | None:
    """What leads from `start` to a final state; None if it gets too large."""
    begin, end = object(), object()
    edges: dict[Hashable, dict[Hashable, Regex]] = {begin: {start: EMPTY}, end: {}}
    for state, steps in machine.items():
        out: dict[Hashable, Regex] = {end: EMPTY} if state in final else {}
        for by, to in steps.items():
            out[to] = union(out.get(to, NOTHING), one_of(by))
        edges[state] = out
    while len(edges) > 2:
        taken = min((s for s in edges if s not in (begin, end)), key=lambda s: _cost(edges, s))
        _take_out(edges, taken)
        if sum(_size(r) for out in edges.values() for r in out.values()) > _MAX_SIZE:
            return None
    return edges[begin].get(end, NOTHING)


def _cost(edges: Mapping[Hashable, Mapping[Hashable, Regex]], state: Hashable) -> int:
    """How much taking it out adds (Delgado and Morais, 2004)."""
    into = [_size(out[state]) for s, out in edges.items() if s is not state and state in out]
    out = [_size(regex) for to, regex in edges[state].items() if to is not state]
    again = _size(edges[state][state]) if state in edges[state] else 0
    added = sum(into) * (len(out) - 1) + sum(out) * (len(into) - 1)
    return added + again * (len(into) * len(out) - 1)


def _take_out(edges: dict[Hashable, dict[Hashable, Regex]], state: Hashable) -> None:
    """Leads around `state` all ways that went through it."""
    out = edges.pop(state)
    again = repeat(out.pop(state, NOTHING))
    for others in edges.values():
        into = others.pop(state, NOTHING)
        if into == NOTHING:
            continue
        for to, regex in out.items():
            others[to] = union(others.get(to, NOTHING), concat(into, again, regex))


def _size(regex: Regex) -> int:
    """Parts, each as often as it stands there."""
    return 1 + sum(_size(part) for part in regex.parts)
