"""Which block holds which content, by a tree of the tokens themselves.

No digest is computed: where edges meet, one block is looked up; the rest of an edge is compared, in
one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from octavo.core.prefix import TOKEN, Prefix
from octavo.core.radix_tree import Node


class RadixIndex:
    """See `PrefixIndex`. A tree for each root digest, shared by all groups of the pool.

    A walk along k blocks costs a lookup for each edge and a comparison of the tokens, 4 bytes
    each. A new branch costs a copy of what it cuts off an edge, and joining the rest when one of
    two branches is gone another.

    `bared` is called with a block that is a leaf (none of its group follows it) after another one
    has been forgotten. It may have been one before.
    """

    def __init__(self, block_size: int) -> None:
        self.bared: Callable[[int], None] = lambda block: None
        self._block_size = block_size
        self._size = block_size * TOKEN
        self._roots: dict[bytes, Node] = {}
        self._nodes: dict[int, Node] = {}  # by block
        self._spots: dict[int, tuple[int, int]] = {}  # by block: its group, the blocks before it

    def __contains__(self, block: int) -> bool:
        return block in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def tokens(self, block: int) -> int:
        node = self._nodes.get(block)
        return node.block_tokens if node else 0

    def held(self, group: int, prefix: Prefix, count: int, whole: bool) -> list[int]:
        found: list[int] = []
        for node, inside in self._way(prefix, count):
            held = node.held.get(group, [])[:inside]
            found += held + [0] * (inside - len(held))
        if whole:
            return found[: found.index(0)] if 0 in found else found
        return found + [0] * (count - len(found))

    def longest_run(
        self, group: int, prefix: Prefix, block: int, most: int, besides: Container[int] = ()
    ) -> tuple[int, int]:
        node, inside = self._way(prefix, block)[-1]
        if node.start + inside < block:
            return (0, 0)
        return node.longest_run(group, inside, prefix.run(block, most), besides)

    def publish(self, group: int, prefix: Prefix, block: int, length: int, holder: int) -> bool:
        run, (node, inside) = prefix.run(block, length), self._way(prefix, block)[-1]
        if node.start + inside == block and node.longest_run(group, inside, run)[1] == length:
            return False
        if holder in self._nodes:
            self.forget(holder)
            node, inside = self._way(prefix, block)[-1]
        self._roots.setdefault(prefix.digest(0), node)
        start, end = (node.start + inside) * self._size, block * self._size
        missing = prefix.packed(block * self._block_size)[start:end]
        node = self._grown(node, inside, bytes(missing), run)
        node.hold(group, block - node.start, holder)
        self._nodes[holder], self._spots[holder] = node, (group, block)
        return True

    def forget(self, holder: int) -> None:
        node = self._nodes.pop(holder, None)
        if node is None:
            return
        group, number = self._spots.pop(holder)
        if leaf := node.drop(group, number - node.start).leaf(group):
            self.bared(leaf)
        self._prune(node)

    def is_leaf(self, block: int) -> bool:
        """Whether no other block of its group follows it."""
        return self._nodes[block].leaf(self._spots[block][0]) == block

    def links(self) -> Iterator[tuple[int, int]]:
        """Every block with the nearest one before it in its group, 0 for none. A block comes
        after all that follow it."""
        nodes = set(self._nodes.values())
        for node in sorted(nodes, key=lambda node: node.start, reverse=True):
            for group, held in node.held.items():
                chain = [node.before(group), *filter(None, held)]
                yield from zip(chain[:0:-1], chain[-2::-1], strict=True)

    def _way(self, prefix: Prefix, blocks: int) -> list[tuple[Node, int]]:
        """The edges that the first `blocks` blocks go along, and how many blocks of each, from
        the root on; a new root where there is none."""
        tokens, size, root = prefix.packed(blocks * self._block_size), self._size, prefix.digest(0)
        node: Node | None = self._roots.get(root) or Node(None, root, 0, b"", size)
        way, done = [], 0
        while node is not None:
            inside = node.shared(tokens, done * size, blocks - done)
            way.append((node, inside))
            done += inside
            if done == blocks or inside < node.blocks:
                break
            node = node.children.get(bytes(tokens[done * size : (done + 1) * size]))
        return way

    def _grown(self, node: Node, inside: int, missing: bytes, run: bytes) -> Node:
        """The edge in which `run` lies, after the first `inside` blocks of `node` and the blocks
        `missing`, which are not in the tree. Made if there is none."""
        known = None if missing else node.find(inside, run)
        if known is not None:
            return known
        if inside < node.blocks:
            node = node.split(inside)
            self._move(node, node)
        if missing:
            node = node.grown(missing)
        return node.grown(run)

    def _prune(self, node: Node) -> None:
        """Take away what holds nothing and leads to nothing; join what then is one edge."""
        while not node.held and not node.children:
            if node.parent is None:
                del self._roots[node.key]
                return
            node.parent.remove(node)
            node = node.parent
        if not node.children:
            node.trim()
        elif child := node.only_edge():
            self._move(child, node)
            node.join(child)

    def _move(self, held_by: Node, node: Node) -> None:
        """What one node holds is to be found at another."""
        for held in held_by.held.values():
            self._nodes.update(dict.fromkeys(filter(None, held), node))
