"""The tree behind a radix index: edges of whole blocks, cut where prompts part.

    root --[The quick brown fox]--+--[jumps over the lazy]--[dog.]   a tail: less than a block
                                  +--[sleeps]                        a tail

Knows tokens, and which block of which KV group holds them; not prompts, and not who is free. The
idea is that of RadixAttention (SGLang, arXiv 2312.07104).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container

from octavo.core.prefix import TOKEN, common_tokens


class Node:
    """An edge, the blocks that hold its tokens, and what follows at its end. A root has no edge.

    `held[group]`: block ids from the edge's beginning to the last one held, 0 in the gaps.
    `below[group]`: under how many children the group holds anything. No entry stands for nothing.
    """

    __slots__ = ("below", "children", "held", "key", "keys", "parent", "run", "size", "start")

    def __init__(self, parent: Node | None, key: bytes, start: int, run: bytes, size: int) -> None:
        self.parent = parent
        self.key = key  # among the parent's children: the first block, or the tail
        self.start = start  # blocks before the edge
        self.run = bytearray(run)
        self.size = size  # bytes of a block
        self.held: dict[int, list[int]] = {}
        self.below: dict[int, int] = {}
        self.children: dict[bytes, Node] = {}
        self.keys: list[bytes] = []  # of the children, sorted

    @property
    def blocks(self) -> int:
        return len(self.run) // self.size

    @property
    def block_tokens(self) -> int:
        """Of each block, or of the tail."""
        return min(len(self.run), self.size) // TOKEN

    def has(self, group: int) -> bool:
        """Whether the group holds anything here or below."""
        return group in self.held or group in self.below

    def holder(self, group: int, inside: int) -> int:
        held = self.held.get(group, ())
        return held[inside] if inside < len(held) else 0

    def leaf(self, group: int) -> int:
        """The block of this edge that no other one of the group follows; 0 for none."""
        return self.held[group][-1] if group in self.held and group not in self.below else 0

    def before(self, group: int) -> int:
        """The last block that the group holds before this edge; 0 for none."""
        node = self.parent
        while node is not None and group not in node.held:
            node = node.parent
        return node.held[group][-1] if node is not None else 0

    def shared(self, tokens: bytearray, at: int, most: int) -> int:
        """How many of the edge's first `most` blocks lie in `tokens` from byte `at` on: tried with
        all, then by halving."""
        size, run = self.size, memoryview(self.run)
        same, length = 0, (most := min(most, self.blocks))
        while same < most:
            if tokens.startswith(run[same * size : length * size], at + same * size):
                same = length
            else:
                most = length - 1
            length = (same + most + 1) // 2
        return same

    def longest_run(
        self, group: int, inside: int, wanted: bytes, besides: Container[int] = ()
    ) -> tuple[int, int]:
        """Who holds most of what `wanted` begins with, after the edge's first `inside` blocks, and
        how many tokens, which may be none; (0, 0) where nothing follows. Among the children, those
        next to it are most like it."""
        if inside < self.blocks:
            run = self.run[inside * self.size : (inside + 1) * self.size]
            holder = self.holder(group, inside)
            shared = common_tokens(run, wanted)
            return (holder, shared) if holder and holder not in besides else (0, 0)
        at = bisect_left(self.keys, wanted)
        best = (0, -1)
        for side in (range(at, len(self.keys)), range(at - 1, -1, -1)):
            for key in (self.keys[i] for i in side):
                shared = common_tokens(key, wanted)
                if shared <= best[1]:
                    break
                holder = self.children[key].holder(group, 0)
                if holder and holder not in besides:
                    best = (holder, shared)
                    break
        return best if best[0] else (0, 0)

    def find(self, inside: int, run: bytes) -> Node | None:
        """The edge in which a block or tail lies, after the first `inside` blocks of this one."""
        if inside == self.blocks:
            return self.children.get(run)
        whole = len(run) == self.size
        return self if whole and self.run.startswith(run, inside * self.size) else None

    def hold(self, group: int, inside: int, block: int) -> None:
        """Block number `inside` of the edge is held by `block`."""
        above = None if self.has(group) else self.parent
        while above is not None:
            first = not above.has(group)
            above.below[group] = above.below.get(group, 0) + 1
            above = above.parent if first else None
        held = self.held.setdefault(group, [])
        held += [0] * (inside + 1 - len(held))
        held[inside] = block

    def drop(self, group: int, inside: int) -> Node:
        """It is held no more; the nearest node at or above this one under which the group still
        holds anything, or the root."""
        self.held[group][inside] = 0
        self.set_held(group, self.held[group])
        node = self
        while not node.has(group) and node.parent is not None:
            node = node.parent
            node.below[group] -= 1
            if not node.below[group]:
                del node.below[group]
        return node

    def set_held(self, group: int, held: list[int]) -> None:
        while held and not held[-1]:
            held.pop()
        if held:
            self.held[group] = held
        else:
            self.held.pop(group, None)

    def grown(self, run: bytes) -> Node:
        """The edge in which new blocks or a tail lie: this one made longer, or another one."""
        if self.parent and not self.children and len(run) >= self.size:
            self.run += run
            return self
        child = Node(self, run[: self.size], self.start + self.blocks, run, self.size)
        self.add(child)
        return child

    def add(self, child: Node) -> None:
        self.children[child.key] = child
        insort(self.keys, child.key)

    def remove(self, child: Node) -> None:
        del self.children[child.key]
        del self.keys[bisect_left(self.keys, child.key)]

    def trim(self) -> None:
        """Forget the end of the edge, which nothing holds."""
        del self.run[max(map(len, self.held.values())) * self.size :]

    def split(self, inside: int) -> Node:
        """Cut off the edge's first `inside` blocks: the new node that leads to this one."""
        assert self.parent is not None, "a root has no edge"
        cut = inside * self.size
        upper = Node(self.parent, self.key, self.start, bytes(self.run[:cut]), self.size)
        for group, held in list(self.held.items()):
            upper.set_held(group, held[:inside])
            self.set_held(group, held[inside:])
        upper.below = dict.fromkeys({*self.held, *self.below}, 1)
        self.parent.children[self.key] = upper
        del self.run[:cut]
        self.parent, self.key = upper, bytes(self.run[: self.size])
        self.start += inside
        upper.add(self)
        return upper

    def only_edge(self) -> Node | None:
        """The child that this edge could be one with."""
        one = self.parent and len(self.keys) == 1 and len(self.keys[0]) == self.size
        return self.children[self.keys[0]] if one else None

    def join(self, child: Node) -> None:
        """Make one edge of this and its only one that follows."""
        blocks = self.blocks
        for group, held in child.held.items():
            before = self.held.setdefault(group, [])
            before += [0] * (blocks - len(before)) + held
        self.run += child.run
        self.below, self.children, self.keys = child.below, child.children, child.keys
        for grandchild in self.children.values():
            grandchild.parent = self
