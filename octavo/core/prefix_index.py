"""Which block holds which content: the interface, and an index by hash.

A block's content is a run of tokens, whole or only its first ones, under the blocks before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from typing import Protocol

from octavo.core.prefix import TOKEN, Prefix, common_tokens

_Run = tuple[bytes, int]  # tokens, and the block that holds them
_Parent = tuple[int, bytes]  # group, digest of all blocks before


class PrefixIndex(Protocol):
    """Content -> block, for the KV groups of one pool.

    The first block published with a content keeps it: a second one stays nameless and is the first
    to be reused when it is freed, so no content is kept twice.
    """

    def __contains__(self, block: int) -> bool: ...

    def __len__(self) -> int: ...

    def tokens(self, block: int) -> int:
        """How many of the block's first tokens are known here; 0 where nothing is."""

    def held(self, group: int, prefix: Prefix, count: int, whole: bool) -> list[int]:
        """For the first `count` blocks of `prefix`, the full blocks that hold them; 0 where none
        does. `whole`: up to the first that is missing."""

    def longest_run(
        self, group: int, prefix: Prefix, block: int, most: int, besides: Container[int] = ()
    ) -> tuple[int, int]:
        """Among the blocks that follow the first `block` ones, one that shares most tokens from
        its beginning with `prefix`, `most` of them at most, and how many, which may be none; (0, 0)
        where no block follows. Blocks in `besides` do not count."""

    def publish(self, group: int, prefix: Prefix, block: int, length: int, holder: int) -> bool:
        """`holder` holds the first `length` tokens of block number `block`; what was said of it
        before is a shorter run of the same. False, with nothing changed, where another one holds
        as much."""

    def forget(self, holder: int) -> None:
        """Remove what is known of a block; nothing happens if nothing is."""


class HashIndex:
    """Full blocks by digest. Runs that follow the same blocks are sorted: those next to a prompt's
    own tokens have most in common with it."""

    def __init__(self) -> None:
        self._full: dict[_Parent, int] = {}
        self._runs: dict[_Parent, list[_Run]] = {}
        self._entries: dict[int, tuple[_Parent, bytes, bytes | None]] = {}  # last: its own digest

    def __contains__(self, block: int) -> bool:
        return block in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def tokens(self, block: int) -> int:
        entry = self._entries.get(block)
        return len(entry[1]) // TOKEN if entry else 0

    def held(self, group: int, prefix: Prefix, count: int, whole: bool) -> list[int]:
        found = []
        for block in range(count):
            holder = self._full.get((group, prefix.digest(block + 1)), 0)
            if whole and not holder:
                break
            found.append(holder)
        return found

    def longest_run(
        self, group: int, prefix: Prefix, block: int, most: int, besides: Container[int] = ()
    ) -> tuple[int, int]:
        runs = self._runs.get((group, prefix.digest(block)), [])
        wanted = prefix.run(block, most)
        at = bisect_left(runs, (wanted, 0))
        found = (0, 0)
        for side in (range(at, len(runs)), range(at - 1, -1, -1)):
            near = next((runs[i] for i in side if runs[i][1] not in besides), None)
            if near is not None:
                shared = common_tokens(near[0], wanted)
                found = max(found, (near[1], shared), key=lambda one: (one[1], one[0] > 0))
        return found

    def publish(self, group: int, prefix: Prefix, block: int, length: int, holder: int) -> bool:
        parent, run = (group, prefix.digest(block)), prefix.run(block, length)
        runs = self._runs.get(parent, [])
        at = bisect_left(runs, (run, 0))
        if at < len(runs) and runs[at][0].startswith(run):
            return False
        self.forget(holder)
        runs = self._runs.setdefault(parent, [])
        runs.insert(bisect_left(runs, (run, 0)), (run, holder))
        own = None
        if length == prefix.block_size:
            own = prefix.digest(block + 1)
            self._full[group, own] = holder
        self._entries[holder] = (parent, run, own)
        return True

    def forget(self, holder: int) -> None:
        entry = self._entries.pop(holder, None)
        if entry is None:
            return
        parent, run, own = entry
        runs = self._runs[parent]
        del runs[bisect_left(runs, (run, holder))]
        if not runs:
            del self._runs[parent]
        if own is not None:
            del self._full[parent[0], own]
