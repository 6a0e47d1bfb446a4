"""Blocks of equal bytes: who is free, who is referenced how often, who goes next.

Free blocks without reusable content go first, the last freed before all others; then those with
content, in the order of eviction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

NULL_BLOCK = 0


class Content(Protocol):
    """What blocks hold, as far as it can be found: an index of some kind."""

    def __contains__(self, block: int) -> bool: ...

    def __len__(self) -> int: ...

    def forget(self, holder: int) -> None:
        """Remove what is known of a block; nothing happens if nothing is."""


class EvictionOrder(Protocol):
    """Free blocks with reusable content, in the order in which they are to be given up."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]:
        """The next to be given up first."""

    def add(self, block: int) -> None:
        """It was used until now."""

    def remove(self, block: int) -> None: ...

    def pop(self) -> int:
        """Remove the first."""


class LeastRecentlyUsed:
    """The end of a chain goes before its beginning, as it is freed first. O(1)."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[int]:
        return iter(self._blocks)

    def add(self, block: int) -> None:
        self._blocks[block] = None

    def remove(self, block: int) -> None:
        del self._blocks[block]

    def pop(self) -> int:
        return self._blocks.popitem(last=False)[0]


class BlockPool:
    """Reference counts and the free blocks. Invariant: free + referenced + null = all.

    `blank` is called with each block whose content stops being reusable, before it is forgotten.
    """

    def __init__(
        self,
        num_blocks: int,
        index: Content,
        cached: EvictionOrder,
        blank: Callable[[int], None] = lambda block: None,
    ) -> None:
        assert num_blocks >= 2, f"a pool needs the null block and one more, got {num_blocks}"
        self.index = index
        self.num_blocks = num_blocks
        self._cached = cached
        self._blanks = list(range(num_blocks - 1, NULL_BLOCK, -1))  # the next one last
        self._blank = blank
        self._refs = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._blanks) + len(self._cached)

    @property
    def num_used(self) -> int:
        return self.num_blocks - 1 - self.num_free

    def refs(self, block: int) -> int:
        return self._refs[block]

    def free_blocks(self) -> Iterator[int]:
        """The next to be taken first."""
        return chain(reversed(self._blanks), self._cached)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks; what they held is forgotten."""
        assert count <= self.num_free, f"{count} blocks wanted, {self.num_free} free"
        return [self._take() for _ in range(count)]

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to each of `blocks` that is not null; a free one is free no more."""
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            if self._refs[block] == 0:
                self._cached.remove(block)
            self._refs[block] += 1

    def release(self, table: Sequence[int]) -> None:
        """Drop a table's references, last block first, so that the tail of a chain is evicted
        before its beginning."""
        for block in reversed(table):
            if block == NULL_BLOCK:
                continue
            assert self._refs[block] > 0, f"block {block} is free already"
            self._refs[block] -= 1
            if self._refs[block]:
                continue
            if block in self.index:
                self._cached.add(block)
            else:
                self._blank(block)
                self._blanks.append(block)

    def forget(self, block: int) -> None:
        """Its content can be found no more, whoever holds it."""
        if block not in self.index:
            return
        self.index.forget(block)
        if self._refs[block] == 0:
            self._cached.remove(block)
            self._blank(block)
            self._blanks.append(block)

    def clear(self) -> None:
        """Forget everything that is free."""
        for block in list(self._cached):
            self.forget(block)

    def _take(self) -> int:
        if self._blanks:
            block = self._blanks.pop()
        else:
            block = self._cached.pop()
            self._blank(block)
            self.index.forget(block)
        self._refs[block] = 1
        return block
