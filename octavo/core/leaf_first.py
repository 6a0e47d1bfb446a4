"""The order of eviction that goes with a radix index: leaves first.

What is given up is the end of some prompt, so that what is left can be reached from its beginning.
Least recently used alone does not see to that where a block can be used without those before it:
a sliding window does, and a sequence that computed again what another one holds.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf

from octavo.core.radix_index import RadixIndex


class LeafFirst:
    """The least recently used leaf; where every free block is followed by one in use, the least
    recently used of all. O(log n) for each block freed and each given up.

    The heap holds every free leaf, and what is no leaf or not free any more: that is passed over.
    """

    def __init__(self, index: RadixIndex) -> None:
        self._index = index
        self._free: OrderedDict[int, int] = OrderedDict()  # block -> when it was freed
        self._leaves: list[tuple[int, int]] = []  # heap: when it was freed, block
        self._now = 0
        index.bared = self._bared

    def __len__(self) -> int:
        return len(self._free)

    def __iter__(self) -> Iterator[int]:
        """A block goes after all that follow it; if one of those is in use, after all leaves."""
        below: defaultdict[int, float] = defaultdict(int)  # when the last that follows was freed
        order = []
        for block, before in self._index.links():
            freed = self._free.get(block, inf)
            blocked = below[block] == inf
            if block in self._free:
                order.append((blocked, freed if blocked else max(freed, below[block]), block))
            below[before] = max(below[before], below[block], freed)
        return (block for *_, block in sorted(order, key=lambda entry: entry[:2]))

    def add(self, block: int) -> None:
        self._now += 1
        self._free[block] = self._now
        if self._index.is_leaf(block):
            self._bared(block)

    def remove(self, block: int) -> None:
        del self._free[block]
        self._tidy()

    def pop(self) -> int:
        block = self._first()
        self.remove(block)
        return block

    def _first(self) -> int:
        while self._leaves:
            freed, block = heappop(self._leaves)
            if self._free.get(block) == freed and self._index.is_leaf(block):
                return block
        return next(iter(self._free))

    def _bared(self, block: int) -> None:
        """It is a leaf, and maybe free."""
        if block in self._free:
            heappush(self._leaves, (self._free[block], block))
            self._tidy()

    def _tidy(self) -> None:
        """At most half of the heap is out of date."""
        if len(self._leaves) > 2 * len(self._free):
            true = {
                (freed, block) for freed, block in self._leaves if self._free.get(block) == freed
            }
            self._leaves = list(true)
            heapify(self._leaves)
