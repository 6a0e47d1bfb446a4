"""Block tables: which blocks each sequence holds, in every KV group.

Knows pools, digests and tables; not who should run. A call that cannot be met changes nothing.
"""

from __future__ import annotations

from octavo.base.kv import KVLayout
from octavo.core.block_pool import BlockPool
from octavo.core.hash_chain import HashChain, root_digest
from octavo.core.sequence import Sequence


class KVManager:
    """Allocates, shares and frees the KV blocks of sequences.

    Args:
        layout: groups and pools, as allocated on the device.
        root: digest of all that KV depends on besides tokens (see `hash_chain.root_digest`).
        prefix_caching: whether full blocks are published and looked for.
    """

    def __init__(self, layout: KVLayout, root: bytes, prefix_caching: bool = True) -> None:
        self.block_size = layout.block_size
        self.pools = [BlockPool(pool.num_blocks) for pool in layout.pools]
        self._pool_of = [self.pools[layout.pool_of(g)] for g in range(len(layout.groups))]
        self._root = root
        self._prefix_caching = prefix_caching
        self._fresh: list[tuple[BlockPool, int]] = []  # published since `settle`

    def chain(self, salt: str) -> HashChain:
        root = root_digest({"root": self._root, "salt": salt}) if salt else self._root
        return HashChain(root, self.block_size)

    def admit(self, sequence: Sequence, watermark: float) -> bool:
        """Give a sequence blocks for all its known tokens, those found by hash first.

        False, with nothing changed, unless in every pool the blocks wanted leave the watermark (a
        share of the pool) free. A hit that lies in the free list counts as wanted: taking it
        makes the free list shorter.
        """
        assert not sequence.tables, f"sequence {sequence.sequence_id} has blocks already"
        hits = self._match(sequence)
        wanted = dict.fromkeys(self.pools, 0)
        for pool, hit in zip(self._pool_of, hits, strict=True):
            wanted[pool] += self._blocks(sequence) - sum(pool.refs(b) > 0 for b in hit)
        if any(n + int(watermark * p.num_blocks) > p.num_free for p, n in wanted.items()):
            return False
        for pool, hit in zip(self._pool_of, hits, strict=True):
            pool.share(hit)  # every hit before any allocation, which could evict it
        sequence.tables = [
            hit + pool.allocate(self._blocks(sequence) - len(hit))
            for pool, hit in zip(self._pool_of, hits, strict=True)
        ]
        sequence.num_published = len(hits[0])
        sequence.num_cached = sequence.num_computed = len(hits[0]) * self.block_size
        return True

    def grow(self, sequence: Sequence) -> bool:
        """Give a running sequence blocks for all its known tokens; False if there are not
        enough."""
        missing = self._blocks(sequence) - len(sequence.tables[0])
        if missing == 0:
            return True
        wanted = dict.fromkeys(self.pools, 0)
        for pool in self._pool_of:
            wanted[pool] += missing
        if any(n > pool.num_free for pool, n in wanted.items()):
            return False
        for pool, table in zip(self._pool_of, sequence.tables, strict=True):
            table.extend(pool.allocate(missing))
        return True

    def unsent(self, sequence: Sequence) -> list[list[int]]:
        """Per group, the blocks added to the table since the last call."""
        sent, sequence.num_sent = sequence.num_sent, len(sequence.tables[0])
        return [table[sent:] for table in sequence.tables]

    def publish(self, sequence: Sequence) -> None:
        """Tell the index of blocks filled by the tokens computed up to now.

        Called when the tokens are scheduled: a later row of the same step may hit them, because
        in every layer all rows write before any row reads.
        """
        full = sequence.num_computed // self.block_size
        if not self._prefix_caching or full == sequence.num_published:
            return
        digests = sequence.chain.upto(sequence.token_ids, full)
        for group, (pool, table) in enumerate(zip(self._pool_of, sequence.tables, strict=True)):
            for block in range(sequence.num_published, full):
                if pool.index.publish(group, digests[block], table[block]):
                    self._fresh.append((pool, table[block]))
        sequence.num_published = full

    def settle(self, written: bool) -> None:
        """The step is over. What it published stays if it was `written`, else it is forgotten,
        whoever holds it by now."""
        if not written:
            for pool, block in self._fresh:
                pool.index.forget(block)
        self._fresh.clear()

    def free(self, sequence: Sequence) -> None:
        for pool, table in zip(self._pool_of, sequence.tables, strict=True):
            pool.release(table)
        sequence.tables = []
        sequence.num_cached = sequence.num_computed = 0
        sequence.num_published = sequence.num_sent = 0

    def _blocks(self, sequence: Sequence) -> int:
        return -(-sequence.num_known // self.block_size)

    def _match(self, sequence: Sequence) -> list[list[int]]:
        """Per group, the blocks of the longest prefix that every group holds. At least one token
        is left to compute, as its logits are needed."""
        if not self._prefix_caching:
            return [[] for _ in self._pool_of]
        most = (sequence.num_known - 1) // self.block_size
        digests = sequence.chain.upto(sequence.token_ids, most)
        hits = [pool.index.match(g, digests) for g, pool in enumerate(self._pool_of)]
        shortest = min(len(hit) for hit in hits)
        return [hit[:shortest] for hit in hits]
