"""How much of a sequence the cache holds: the longest prefix that every KV group accepts.

A group of attention accepts a length if it holds all blocks that the next token sees; the last of
them may be held in part, and is then copied. A state group accepts the lengths after which it has a
state. Full attention accepts every shorter length too, a sliding window or a state may not, so
lengths are tried until all agree.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from octavo.base.kv import KVGroup
from octavo.core.block_pool import NULL_BLOCK
from octavo.core.prefix import Prefix
from octavo.core.prefix_index import PrefixIndex
from octavo.core.state_index import StateIndex

SWAPPED = -1  # a block that lies in the swap tier


@dataclass(frozen=True, slots=True)
class Hit:
    """Tokens found, and where, by KV group."""

    tokens: int
    # Of attention the full blocks, null where nobody sees them any more, or SWAPPED. Of states one.
    tables: list[list[int]]
    tails: list[int]  # a block that begins with the tokens after those; null where there are none


class Matcher:
    """One look at the cache, for one sequence.

    `besides`: by group, blocks that are not written yet: they can be shared but not copied. States
    that are not written yet are not there, as the rows of one step do not wait for each other.
    """

    def __init__(
        self,
        groups: Sequence[KVGroup],
        indexes: Mapping[int, PrefixIndex],
        states: Mapping[int, StateIndex],
        prefix: Prefix,
        most: int,
        besides: Sequence[Container[int]],
        swapped: Callable[[int, bytes], bool] | None = None,
    ) -> None:
        """`indexes`, `states`: by group, which has the one or the other; `most`: tokens that may be
        taken; `swapped`: whether the swap tier has a group's block of this digest."""
        self._groups = groups
        self._indexes = indexes
        self._states = states
        self._full_first = sorted(indexes, key=lambda g: (groups[g].window or 0, g))
        self._prefix = prefix
        self._besides = besides
        self._size = prefix.block_size
        self._most = most
        self._held = {g: self._find(g, most // self._size, swapped) for g in indexes}
        self._reach = self._agree(self._full_first, most)  # tokens that attention alone accepts

    def hit(self) -> Hit:
        tokens = self._reach
        if self._states:
            tokens = self._agree([*self._states, *self._full_first], tokens)
        groups = range(len(self._groups))
        return Hit(
            tokens,
            [self._table(group, tokens) for group in groups],
            [self._tail(g, *divmod(tokens, self._size))[0] for g in groups],
        )

    def missing(self, tokens: int) -> Iterator[bytes]:
        """Digests of the blocks that a longer hit than `tokens` would have needed next."""
        known = len(self._prefix.token_ids) // self._size
        after = tokens // self._size + 1
        seen = max((g.window or 0) // self._size for g in self._groups) + 1
        last = known if self._states else min(known, after + seen)
        for block in range(after, last + 1):
            yield self._prefix.digest(block)

    def lacks_state(self, tokens: int) -> bool:
        """Whether attention accepts more than these, so that only a state was missing."""
        return bool(self._full_first) and tokens < self._reach

    def diverges(self) -> bool:
        """Whether the cache holds other tokens behind those that attention accepts."""
        if not self._full_first or self._reach == self._most:
            return False
        group = self._full_first[0]
        block, inside = divmod(self._reach, self._size)
        holder, shared = self._tail(group, block, min(self._size, self._most - block * self._size))
        return shared <= inside < self._indexes[group].tokens(holder)

    def _find(
        self, group: int, count: int, swapped: Callable[[int, bytes], bool] | None
    ) -> list[int]:
        """The first `count` blocks, 0 where one is missing; up to that one if all are needed."""
        whole = self._groups[group].window is None
        if swapped is None:
            return self._indexes[group].held(group, self._prefix, count, whole)
        held = self._indexes[group].held(group, self._prefix, count, whole=False)
        for block in range(count):
            if not held[block] and swapped(group, self._prefix.digest(block + 1)):
                held[block] = SWAPPED
            if whole and not held[block]:
                return held[:block]
        return held

    def _agree(self, groups: Sequence[int], most: int) -> int:
        """The longest prefix, of `most` tokens at most, that all these groups accept."""
        tokens, agreed = most, False
        while not agreed:
            length = tokens
            for group in groups:
                length = self._longest(group, length)
            agreed, tokens = length == tokens, length
        return tokens

    def _longest(self, group: int, most: int) -> int:
        """The longest prefix, of `most` tokens at most, that one group accepts."""
        if group in self._states:
            return self._state(group, most)[0]
        held, size = self._held[group][: most // self._size], self._size
        runs = list(accumulate(held, lambda run, block: run + 1 if block else 0, initial=0))
        for blocks in range(len(held), 0, -1):
            room = min(size, most - blocks * size)
            if runs[blocks] < self._needed(group, blocks, room):
                continue
            tail = self._tail(group, blocks, room)[1]
            if runs[blocks] >= self._needed(group, blocks, tail):
                return blocks * size + tail
        return self._tail(group, 0, min(size, most))[1]

    def _needed(self, group: int, blocks: int, tail: int) -> int:
        """Of `blocks` full ones, how many a token sees that follows them and a tail."""
        return blocks - self._groups[group].first_seen(blocks * self._size + tail) // self._size

    def _tail(self, group: int, blocks: int, room: int) -> tuple[int, int]:
        if group in self._states:
            return NULL_BLOCK, 0
        if room == 0 or blocks in self._prefix.keys:  # what is keyed is found whole, or not
            return NULL_BLOCK, 0
        index = self._indexes[group]
        return index.longest_run(group, self._prefix, blocks, room, self._besides[group])

    def _state(self, group: int, most: int) -> tuple[int, int]:
        return self._states[group].longest(self._prefix, most, self._besides[group])

    def _table(self, group: int, tokens: int) -> list[int]:
        if group in self._states:
            return [self._state(group, tokens)[1]]
        first = self._groups[group].first_seen(tokens) // self._size
        return [NULL_BLOCK] * first + self._held[group][first : tokens // self._size]
