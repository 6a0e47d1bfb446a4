"""Blocks of equal bytes: who is free, who is referenced how often, who goes next.

The free list is a circular doubly linked list threaded through two arrays, so that a hit can take
a block out of the middle in O(1). Its head is block 0, the null block, which is never free:

    0 <-> front (taken next) <-> ... <-> back (kept longest) <-> 0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from octavo.core.prefix_index import HashIndex

NULL_BLOCK = 0


class BlockPool:
    """Reference counts and the order of eviction. Invariant: free + referenced + null = all."""

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 2, f"a pool needs the null block and one more, got {num_blocks}"
        self.index = HashIndex()
        self.num_blocks = num_blocks
        self.num_free = num_blocks - 1
        self._refs = [0] * num_blocks
        self._next = [*range(1, num_blocks), 0]
        self._prev = [num_blocks - 1, *range(num_blocks - 1)]

    @property
    def num_used(self) -> int:
        return self.num_blocks - 1 - self.num_free

    def refs(self, block: int) -> int:
        return self._refs[block]

    def free_blocks(self) -> Iterator[int]:
        """Free blocks, the next to be taken first."""
        block = self._next[NULL_BLOCK]
        while block != NULL_BLOCK:
            yield block
            block = self._next[block]

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks from the front; what they held is forgotten."""
        assert count <= self.num_free, f"{count} blocks wanted, {self.num_free} free"
        taken = []
        for _ in range(count):
            block = self._next[NULL_BLOCK]
            self._unlink(block)
            self.index.forget(block)
            self._refs[block] = 1
            taken.append(block)
        return taken

    def share(self, blocks: Sequence[int]) -> None:
        """Add a reference to each of `blocks`; a free one is taken out of the free list."""
        for block in blocks:
            if self._refs[block] == 0:
                self._unlink(block)
            self._refs[block] += 1

    def release(self, table: Sequence[int]) -> None:
        """Drop a table's references, last block first, so that the tail of a chain is evicted
        before its beginning. Blocks without reusable content go to the front."""
        for block in reversed(table):
            if block == NULL_BLOCK:
                continue
            assert self._refs[block] > 0, f"block {block} is free already"
            self._refs[block] -= 1
            if self._refs[block] == 0:
                after = self._prev[NULL_BLOCK] if block in self.index else NULL_BLOCK
                self._link(block, after)

    def _link(self, block: int, after: int) -> None:
        before = self._next[after]
        self._next[after] = self._prev[before] = block
        self._prev[block], self._next[block] = after, before
        self.num_free += 1

    def _unlink(self, block: int) -> None:
        before, after = self._prev[block], self._next[block]
        self._next[before], self._prev[after] = after, before
        self.num_free -= 1
