"""Sequences over one pool with a radix index: every answer and every eviction is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prefix_oracle import Checked

from octavo.core.block_pool import BlockPool
from octavo.core.leaf_first import LeafFirst
from octavo.core.prefix import Prefix
from octavo.core.radix_index import RadixIndex

BLOCK = 3
FULL, WINDOW = 0, 1  # groups


class CheckedOrder:
    """An `EvictionOrder` that knows what must come next: the least recently used free leaf."""

    def __init__(self, order: LeafFirst, index: Checked) -> None:
        self.order, self.index = order, index
        self.free: dict[int, int] = {}  # block -> when it was freed
        self.pops: Counter[str] = Counter()
        self.now = 0

    def __len__(self) -> int:
        assert len(self.order) == len(self.free)
        return len(self.free)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def add(self, block: int) -> None:
        self.now += 1
        self.free[block] = self.now
        self.order.add(block)

    def remove(self, block: int) -> None:
        del self.free[block]
        self.order.remove(block)

    def pop(self) -> int:
        leaves = self.index.oracle.leaves() & self.free.keys()
        expected = min(leaves or self.free, key=self.free.__getitem__)
        foreseen = next(iter(self.order))
        assert self.order.pop() == expected == foreseen
        self.pops["leaf" if leaves else "other"] += 1
        del self.free[expected]
        return expected


class Sequence:
    def __init__(self, prefix: Prefix) -> None:
        self.prefix = prefix
        self.tables: list[list[int]] = [[], []]
        self.written = 0


class World:
    """Sequences that share blocks of one pool, and a memory that remembers what it was given.

    `window`: tokens that the second group looks back; what lies before is released. 0: there is
    no second group.
    """

    def __init__(self, num_blocks: int, window: int) -> None:
        self.radix = RadixIndex(BLOCK)
        self.index = Checked(BLOCK, self.radix)
        self.leaf_first = LeafFirst(self.radix)
        self.order = CheckedOrder(self.leaf_first, self.index)
        self.pool = BlockPool(num_blocks, self.index, self.order, self.blank)
        self.window = window
        self.groups = (FULL, WINDOW) if window else (FULL,)
        self.memory: dict[tuple[int, int], object] = {}
        self.live: list[Sequence] = []
        self.hits = 0

    def blank(self, block: int) -> None:
        assert self.pool.refs(block) == 0, "a block in use was given up"
        for offset in range(BLOCK):
            self.memory.pop((block, offset), None)

    def add(self, root: bytes, tokens: list[int]) -> None:
        sequence = Sequence(Prefix(root, BLOCK, tokens))
        blocks = self.match(sequence)
        for group in self.groups:
            self.pool.share(sequence.tables[group])
        sequence.written = blocks * BLOCK
        self.hits += blocks
        self.live.append(sequence)
        self.compute(sequence)

    def match(self, sequence: Sequence) -> int:
        """The longest prefix that the first group holds, and the second one its window's part."""
        prefix = sequence.prefix
        full = len(prefix.token_ids) // BLOCK
        hit = self.index.held(FULL, prefix, full, whole=True)
        windowed = self.index.held(WINDOW, prefix, full, whole=False)
        for blocks in range(len(hit), -1, -1):
            start = self.slid_out(blocks * BLOCK)
            if not self.window or all(windowed[start:blocks]):
                break
        sequence.tables[FULL] = hit[:blocks]
        if self.window:
            sequence.tables[WINDOW] = [0] * start + windowed[start:blocks]
        for group in self.groups:
            for block, holder in enumerate(sequence.tables[group]):
                self.verify(group, prefix, block, holder, BLOCK)
            holder, shared = self.index.longest_run(group, prefix, blocks, BLOCK)
            self.verify(group, prefix, blocks, holder, shared)
        return blocks

    def verify(self, group: int, prefix: Prefix, block: int, holder: int, length: int) -> None:
        for offset in range(length if holder else 0):
            written = self.content(group, prefix, block * BLOCK + offset)
            assert self.memory[holder, offset] == written

    def content(self, group: int, prefix: Prefix, position: int) -> object:
        return group, prefix.digest(0), tuple(prefix.token_ids[: position + 1])

    def slid_out(self, tokens: int) -> int:
        """Blocks that the window no longer reaches when `tokens` are known."""
        return max(0, tokens - self.window) // BLOCK

    def compute(self, sequence: Sequence) -> None:
        """Blocks for all tokens, then write and publish; the sequence ends if there are none."""
        prefix, known = sequence.prefix, len(sequence.prefix.token_ids)
        if self.window:
            self.slide(sequence.tables[WINDOW], self.slid_out(sequence.written))
        missing = -(-known // BLOCK) - len(sequence.tables[FULL])
        if missing * len(self.groups) > self.pool.num_free:
            self.finish(sequence)
            return
        for group in self.groups:
            table = sequence.tables[group]
            table += self.pool.allocate(missing)
            for position in range(sequence.written, known):
                slot = table[position // BLOCK], position % BLOCK
                self.memory[slot] = self.content(group, prefix, position)
            for block in range(sequence.written // BLOCK, known // BLOCK):
                self.index.publish(group, prefix, block, BLOCK, table[block])
        sequence.written = known

    def slide(self, table: list[int], count: int) -> None:
        for block in range(count):
            if table[block]:
                self.pool.release([table[block]])
                table[block] = 0

    def grow(self, sequence: Sequence, tokens: list[int]) -> None:
        sequence.prefix.token_ids += tokens
        self.compute(sequence)

    def fork(self, sequence: Sequence, tokens: list[int]) -> None:
        """Another sequence with the same whole blocks, which goes on otherwise."""
        whole = sequence.written // BLOCK
        kept = sequence.prefix.token_ids[: whole * BLOCK]
        forked = Sequence(sequence.prefix.fork(kept + tokens))
        forked.tables = [table[:whole] for table in sequence.tables]
        forked.written = whole * BLOCK
        for table in forked.tables:
            self.pool.share(table)
        self.live.append(forked)
        self.compute(forked)

    def tail(self, sequence: Sequence) -> None:
        block, length = divmod(sequence.written, BLOCK)
        if length:
            for group in self.groups:
                table = sequence.tables[group]
                self.index.publish(group, sequence.prefix, block, length, table[block])

    def finish(self, sequence: Sequence) -> None:
        for table in sequence.tables:
            self.pool.release(table)
        self.live.remove(sequence)

    def check(self) -> None:
        held = Counter(b for s in self.live for table in s.tables for b in table if b)
        assert all(self.pool.refs(b) == held[b] for b in range(1, self.pool.num_blocks))
        assert self.pool.num_free == self.pool.num_blocks - 1 - len(held)
        assert len(self.order) == sum(not held[b] for b in self.index.oracle.runs)
        assert len(self.leaf_first._leaves) <= 2 * len(self.order)
        check_tree(self.radix)

    def drain(self) -> None:
        for sequence in list(self.live):
            self.finish(sequence)
        self.check()
        assert self.pool.num_free == self.pool.num_blocks - 1
        taken = self.pool.allocate(self.pool.num_free)
        assert sorted(taken) == list(range(1, self.pool.num_blocks))
        assert not (self.radix._roots or self.radix._nodes or self.radix._spots)
        assert not (self.leaf_first._free or self.leaf_first._leaves or self.memory)


def check_tree(radix: RadixIndex) -> None:
    """Every edge is as long as can be, leads to something that is held, and counts it right."""
    nodes = list(radix._roots.values())
    for node in nodes:
        nodes += node.children.values()
        assert sorted(node.children) == node.keys
        assert node.parent is None or len(node.run) > 0
        assert node.held or node.children
        whole = [key for key in node.keys if len(key) == radix._block_size * 4]
        assert node.parent is None or len(node.keys) != 1 or not whole
        below = Counter(g for child in node.children.values() for g in {*child.held, *child.below})
        assert node.below == below
        for group, held in node.held.items():
            assert held[-1] and len(held) <= max(1, node.blocks)
            for inside, block in enumerate(held):
                assert not block or radix._nodes[block] is node
                assert not block or radix._spots[block] == (group, node.start + inside)
        for child in node.children.values():
            assert child.parent is node and child.start == node.start + node.blocks
            assert child.run.startswith(child.key)
    assert sum(b > 0 for node in nodes for row in node.held.values() for b in row) == len(radix)
    assert len(nodes) <= 3 * len(radix) + len(radix._roots)
