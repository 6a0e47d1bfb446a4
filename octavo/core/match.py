"""How much of a sequence the cache holds: the longest prefix that every KV group accepts.

A group accepts a length if it holds all blocks that the next token sees; the last of them may be
held in part, and is then copied. Full attention accepts every shorter length too, a sliding window
may not, so lengths are tried until all agree.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from octavo.base.kv import KVGroup
from octavo.core.block_pool import NULL_BLOCK
from octavo.core.prefix import Prefix
from octavo.core.prefix_index import PrefixIndex

SWAPPED = -1  # a block that lies in the swap tier


@dataclass(frozen=True, slots=True)
class Hit:
    """Tokens found, and where, by KV group."""

    tokens: int
    tables: list[list[int]]  # the full blocks; null where nobody sees them any more, or SWAPPED
    tails: list[int]  # a block that begins with the tokens after those; null where there are none


class Matcher:
    """One look at the cache, for one sequence.

    `besides`: by group, blocks that are not written yet: they can be shared but not copied.
    """

    def __init__(
        self,
        groups: Sequence[KVGroup],
        indexes: Sequence[PrefixIndex],
        prefix: Prefix,
        most: int,
        besides: Sequence[Container[int]],
        swapped: Callable[[int, bytes], bool] | None = None,
    ) -> None:
        """`indexes`: by group; `most`: tokens that may be taken; `swapped`: whether the swap tier
        has a group's block of this digest."""
        self._groups = groups
        self._indexes = indexes
        self._prefix = prefix
        self._besides = besides
        self._size = prefix.block_size
        self._most = most
        self._held = [self._find(g, most // self._size, swapped) for g in range(len(groups))]

    def hit(self) -> Hit:
        tokens, agreed = self._most, False
        full_first = sorted(range(len(self._groups)), key=lambda g: self._groups[g].window or 0)
        while not agreed:
            length = tokens
            for group in full_first:
                length = self._longest(group, length)
            agreed, tokens = length == tokens, length
        groups = range(len(self._groups))
        return Hit(
            tokens,
            [self._table(group, tokens) for group in groups],
            [self._tail(group, *divmod(tokens, self._size))[0] for group in groups],
        )

    def missing(self, tokens: int) -> Iterator[bytes]:
        """Digests of the blocks that a longer hit than `tokens` would have needed next."""
        known = len(self._prefix.token_ids) // self._size
        after = tokens // self._size + 1
        seen = max((g.window or 0) // self._size for g in self._groups) + 1
        for block in range(after, min(known, after + seen) + 1):
            yield self._prefix.digest(block)

    def diverges(self, tokens: int) -> bool:
        """Whether the cache holds other tokens behind the first `tokens` ones."""
        group = min(range(len(self._groups)), key=lambda g: self._groups[g].window or 0)
        block, inside = divmod(tokens, self._size)
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

    def _longest(self, group: int, most: int) -> int:
        """The longest prefix, of `most` tokens at most, that one group accepts."""
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
        if room == 0 or blocks in self._prefix.keys:  # what is keyed is found whole, or not
            return NULL_BLOCK, 0
        index = self._indexes[group]
        return index.longest_run(group, self._prefix, blocks, room, self._besides[group])

    def _table(self, group: int, tokens: int) -> list[int]:
        first = self._groups[group].first_seen(tokens) // self._size
        return [NULL_BLOCK] * first + self._held[group][first : tokens // self._size]
