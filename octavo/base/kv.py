"""Exact KV memory, as words: which layers keep what, in pages of how many bytes.

        group "full"     layers 0 2 4 ...   one block table, pages of 16 x bytes_per_token
        group "window"   layers 1 3 5 ...   its own block table, its own page size

A page is one block of one group: `block_size` token slots in every layer of the group. Groups
whose pages have equal bytes draw from one pool; others have their own sub-pool.

        group "state"    layers 6 7 ...     | state before the row | state after it |

A block of a state group is one whole state: what its layers keep of all tokens up to some position.
A row reads one and writes another, so a state that was written never changes. Each state group has
a pool of its own.

`chunk` is the most tokens of a sequence that one step computes: they are kept besides a window.
"""

from __future__ import annotations

from typing import Literal

import msgspec

KVKind = Literal["full", "window", "chunked", "state"]


class KVGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that keep the same kind of state and share one block table.

    `bytes_per_token` adds K and V (or the one latent) of all the group's layers; K and V may
    differ in width. A `state` group keeps `state_bytes` in each block and nothing per token.
    """

    name: str
    kind: KVKind = "full"
    layers: tuple[int, ...]
    bytes_per_token: int = 0
    window: int | None = None  # tokens visible: a sliding window, or a chunk's length
    state_bytes: int = 0  # all layers, one state
    uneven: bool = False  # some of its layers keep more than others, and so it is not to be cut

    @property
    def is_state(self) -> bool:
        return self.kind == "state"

    def page_bytes(self, block_size: int) -> int:
        return self.state_bytes if self.is_state else self.bytes_per_token * block_size

    def first_seen(self, position: int) -> int:
        """The oldest position that the token at `position` sees."""
        if self.window is None:
            return 0
        if self.kind == "chunked":
            return position // self.window * self.window
        return max(0, position - self.window + 1)

    def most_blocks(self, num_tokens: int, block_size: int, chunk: int) -> int:
        """Blocks that a sequence of `num_tokens` holds at once, at most."""
        if self.is_state:
            return 2
        blocks = -(-num_tokens // block_size)
        if self.window is None:
            return blocks
        seen = self.window - 1 + chunk  # consecutive tokens, beginning anywhere in a block
        return min(blocks, (seen + block_size - 2) // block_size + 1)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of equal bytes. `num_blocks` includes block 0, the null block."""

    page_bytes: int
    num_blocks: int
    groups: tuple[int, ...]  # indices into `KVLayout.groups`


class KVLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How KV memory is cut; computed once at start from the spec and the budget."""

    block_size: int
    groups: tuple[KVGroup, ...]
    pools: tuple[Pool, ...]
    chunk: int = 2**31  # tokens
    # How many may run at once, whatever their length: of the states two for each of these, all
    # others are kept to be found again.
    most_sequences: int = 2**31
    state_interval: int | None = None  # tokens after which a state is kept; None: none is

    @property
    def total_bytes(self) -> int:
        return sum(pool.page_bytes * pool.num_blocks for pool in self.pools)

    @property
    def state_pools(self) -> list[Pool]:
        return [pool for pool in self.pools if self.groups[pool.groups[0]].is_state]

    def blocks_for(self, num_tokens: int) -> list[int]:
        """By pool, the blocks that one sequence of `num_tokens` holds at once, at most."""
        size, chunk = self.block_size, self.chunk
        return [
            sum(self.groups[g].most_blocks(num_tokens, size, chunk) for g in pool.groups)
            for pool in self.pools
        ]

    def fits_together(self, sequences: int, num_tokens: int, shared: int) -> bool:
        """Whether so many sequences of `num_tokens` fit that have the first `shared` in common."""
        if sequences > self.most_sequences:
            return False
        one = self.blocks_for(num_tokens)
        common = [
            sum(shared // self.block_size for g in pool.groups if self._keeps_all(g))
            for pool in self.pools
        ]
        return all(
            both + sequences * (each - both) < pool.num_blocks
            for pool, each, both in zip(self.pools, one, common, strict=True)
        )

    def sequences(self, num_tokens: int) -> int:
        """How many sequences of `num_tokens` fit at once."""
        each = self.blocks_for(num_tokens)
        fit = min((p.num_blocks - 1) // n for p, n in zip(self.pools, each, strict=True))
        return min(fit, self.most_sequences)

    def _keeps_all(self, group: int) -> bool:
        return self.groups[group].window is None and not self.groups[group].is_state

    def pool_of(self, group: int) -> int:
        return next(i for i, pool in enumerate(self.pools) if group in pool.groups)
