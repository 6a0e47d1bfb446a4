"""Questions to regular expressions: whether they match anything, and which texts if few."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from octavo.base.errors import RequestError
from octavo.grammar.regex import EMPTY, NOTHING, Kind, Regex, concat, text, union

MAX_STATES = 4096
_ASCII = 128  # most that match have a text of these bytes, which is found sooner


def is_empty(regex: Regex) -> bool:
    """Whether no text matches.

    Raises:
        RequestError: too many states were seen to know.
    """
    if regex.nullable or regex.kind == Kind.NOTHING:
        return not regex.nullable
    if regex.is_plain:
        return False
    return not (_leads_out(regex, _ASCII) or _leads_out(regex, 256))


def _leads_out(regex: Regex, below: int) -> bool:
    """Whether a text matches whose bytes are all below this."""
    seen, waiting = {regex}, [regex]
    for state in waiting:
        for byte in state.representatives:
            if byte >= below:
                break
            after = state.derivative(byte)
            if after.nullable or (after.is_plain and after.kind != Kind.NOTHING):
                return True
            if after not in seen and after.kind != Kind.NOTHING:
                seen.add(after)
                waiting.append(after)
        if len(seen) > MAX_STATES:
            raise RequestError(
                f"patterns, formats and lengths together need more than {MAX_STATES} states",
                "json",
            )
    return False


def words(regex: Regex, limit: int) -> list[str] | None:
    """All texts that match, in order; None if they are more than `limit`, or cannot be told."""
    try:
        return sorted(word.decode() for word in _endings(regex, limit, {}))
    except _Endless:
        return None


def bounded(regex: Regex, limit: int) -> bool:
    """Whether its form alone says that texts are not endless; False says nothing."""
    if regex.kind in (Kind.CHARS, Kind.BYTES):
        return sum(high - low + 1 for low, high in regex.ranges) <= limit
    if regex.kind == Kind.BOTH:
        return any(bounded(part, limit) for part in regex.parts)
    if regex.kind == Kind.NOT or (regex.kind == Kind.REPEAT and regex.most is None):
        return False
    return all(bounded(part, limit) for part in regex.parts)


class _Endless(Exception):
    """There are too many."""


def _endings(
    state: Regex, limit: int, known: dict[Regex, list[bytes] | None], depth: int = 0
) -> list[bytes]:
    """All that may follow; `known`: by state, None while it is being found."""
    if state in known:
        found = known[state]
        if found is None and not is_empty(state):  # it leads to itself and to an end
            raise _Endless
        return found or []
    if depth > 4 * limit or len(known) > 4 * limit:
        raise _Endless
    known[state] = None
    found = [b""] if state.nullable else []
    starts = state.representatives
    for low, end in zip(starts, [*starts[1:], 256], strict=True):
        after = state.derivative(low)
        if after == NOTHING:
            continue
        if end - low > limit and not is_empty(after):
            raise _Endless
        rest = _endings(after, limit, known, depth + 1)
        found += [bytes((byte,)) + word for byte in range(low, end) for word in rest]
        if len(found) > limit:
            raise _Endless
    known[state] = found
    return found


def any_text_of(texts: Sequence[str]) -> Regex:
    """Any of these texts, as a tree by their beginnings: one that is quick to match."""
    return _tree(sorted(set(texts)), 0)


def _tree(texts: list[str], at: int) -> Regex:
    if len(texts) == 1:
        return text(texts[0][at:])
    branches = []
    for first, group in groupby(texts, lambda t: t[at : at + 1]):
        members = list(group)
        after = at + _common(members, at)
        branches.append(
            concat(text(members[0][at:after]), _tree(members, after)) if first else EMPTY
        )
    return union(*branches) if branches else NOTHING


def _common(texts: list[str], at: int) -> int:
    """How many characters from `at` on all of these sorted texts share."""
    first, last = texts[0][at:], texts[-1][at:]
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return same
