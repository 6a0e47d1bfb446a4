"""Block tables: which blocks each sequence holds, in every KV group.

Knows pools, content and tables; not who should run. A call that cannot be met changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from octavo.base.kv import KVLayout
from octavo.base.plan import Copy, Move, StepPlan
from octavo.base.request import Request
from octavo.core.block_pool import NULL_BLOCK, BlockPool
from octavo.core.match import SWAPPED, Hit, Matcher
from octavo.core.miss import Miss, Misses
from octavo.core.prefix import Prefix, root_digest
from octavo.core.prefix_indexes import PREFIX_INDEXES
from octavo.core.sequence import Sequence
from octavo.core.swap import SwapDirectory


@dataclass(frozen=True, slots=True)
class _Load:
    """A block that comes back from the swap tier, and who waits for it."""

    sequence: Sequence
    life: int  # the sequence's, when it began to wait
    group: int
    number: int  # of the block in the sequence
    block: int

    @property
    def prefix(self) -> Prefix:
        return self.sequence.prefix


class KVManager:
    """Allocates, shares, copies and frees the KV blocks of sequences.

    Args:
        layout: groups and pools, as allocated on the device.
        root: all that KV depends on besides tokens and the request, by name.
        prefix_caching: whether content is published and looked for.
        prefix_index: "hash" or "radix".
        swap: what the swap tier holds, if there is one.
        blank: called with (pool, block) whose content nobody can find any more.
    """

    def __init__(
        self,
        layout: KVLayout,
        root: Mapping[str, str],
        prefix_caching: bool = True,
        prefix_index: str = "hash",
        swap: SwapDirectory | None = None,
        blank: Callable[[int, int], None] = lambda pool, block: None,
    ) -> None:
        self.block_size = layout.block_size
        self.root = dict(root)
        self._blank = blank
        make_index = PREFIX_INDEXES[prefix_index]
        self.pools = [
            BlockPool(pool.num_blocks, *make_index(layout.block_size), partial(self._gone, p))
            for p, pool in enumerate(layout.pools)
        ]
        self._layout = layout
        self._groups = layout.groups
        self._number_of = [layout.pool_of(g) for g in range(len(layout.groups))]  # of the pool
        self._pool_of = [self.pools[p] for p in self._number_of]
        self._prefix_caching = prefix_caching
        self._holders: dict[int, Sequence] = {}  # sequences that have blocks
        # Of full blocks that can be found: (pool, block) -> group, digest.
        self._names: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._misses = Misses()
        self._swap = swap
        self._loading: dict[str, deque[_Load]] = {}  # by name, in the order in which they began
        self._copies: list[Copy] = []  # for the step that is planned, and these:
        self._saves: list[Move] = []
        self._loads: list[Move] = []
        self._discards: list[str] = []
        self._fresh: list[set[int]] = [set() for _ in self.pools]  # what it published
        self._is_planning = False

    def prefix(self, request: Request, token_ids: list[int]) -> Prefix:
        """Of a sequence of this request."""
        return Prefix(root_digest(self._root_of(request)), self.block_size, token_ids)

    # ---- a step ----

    def begin(self) -> None:
        """A step is being planned: what is published from now on is not written yet."""
        self._is_planning = True

    def complete(self, plan: StepPlan) -> StepPlan:
        """The plan with all that must be moved."""
        copies, self._copies = self._copies, []
        saves, self._saves = self._saves, []
        loads, self._loads = self._loads, []
        discards, self._discards = self._discards, []
        if self._swap is not None:
            discards += self._swap.shrink()
        return msgspec.structs.replace(
            plan, copies=copies, saves=saves, loads=loads, discards=discards
        )

    def settle(self, written: bool) -> None:
        """The step is over. What it published stays if it was `written`, else it is forgotten,
        whoever holds it by now."""
        for pool, fresh in zip(self.pools, self._fresh, strict=True):
            for block in fresh if not written else ():
                self._names.pop((self.pools.index(pool), block), None)  # it has no content
                pool.forget(block)
            fresh.clear()
        self._is_planning = False

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    # ---- sequences ----

    def admit(self, sequence: Sequence, watermark: float) -> bool:
        """Give a sequence what the cache holds of it.

        False, with nothing changed, unless in every pool all that it may claim is free besides the
        claims of others and the watermark (a share of the pool). A hit that lies in the free list
        counts as wanted: taking it makes the free list shorter.
        """
        assert not sequence.tables, f"sequence {sequence.sequence_id} has blocks already"
        matcher = self._matcher(sequence)
        hit = matcher.hit()
        wanted = self._claims(self._holders.values())
        unborn = sequence.state.unborn if self._holders else 0  # alone, it may always begin
        for g, (number, table) in enumerate(zip(self._number_of, hit.tables, strict=True)):
            in_use = sum(block > 0 and self._pool_of[g].refs(block) > 0 for block in table)
            wanted[number] += self._claim(g, sequence, hit.tokens, unborn) - in_use
        for pool, want in zip(self.pools, wanted, strict=True):
            if want + int(watermark * pool.num_blocks) > pool.num_free:
                return False
        if sequence.state.prompt_hit is None:
            sequence.state.miss = self._explain(sequence, matcher, hit.tokens)
        self._adopt(sequence, hit)
        return True

    def extend(self, sequence: Sequence, upto: int) -> bool:
        """Blocks for a sequence's first `upto` tokens, of which the uncomputed ones will be
        written; what slid out of windows is freed. False if there are not enough besides what
        others have reserved."""
        self._slide(sequence)
        block, inside = divmod(sequence.num_computed, self.block_size)
        shared = [g for g in self._all_groups if inside and self._is_shared(g, sequence, inside)]
        missing = -(-upto // self.block_size) - len(sequence.tables[0])
        if not missing and not shared:
            return True
        wanted = [0] * len(self.pools)
        if not sequence.reserves:
            others = (s for s in self._holders.values() if s.reserves)
            wanted = self._claims(others)
        for g in self._all_groups:
            wanted[self._number_of[g]] += missing + (g in shared)
        if any(n > p.num_free for n, p in zip(wanted, self.pools, strict=True)):
            return False
        for g in shared:
            self._copy(g, sequence, block)
        for pool, table in zip(self._pool_of, sequence.tables, strict=True):
            table.extend(pool.allocate(missing))
        return True

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """`child` begins with all that `parent` has computed; they share every block."""
        child.tables = [list(table) for table in parent.tables]
        child.slid = list(parent.slid)
        child.num_cached = child.num_computed = parent.num_computed
        child.num_published = parent.num_published
        self._holders[child.sequence_id] = child
        for pool, table in zip(self._pool_of, child.tables, strict=True):
            pool.share(table)

    def publish(self, sequence: Sequence) -> None:
        """Tell the index of blocks filled by the tokens computed up to now.

        Called when the tokens are scheduled: a later row of the same step may share them, because
        in every layer all rows write before any row reads.
        """
        full = sequence.num_computed // self.block_size
        if self._prefix_caching:
            for block in range(sequence.num_published, full):
                self._publish(sequence, block, self.block_size)
        sequence.num_published = full

    def publish_tail(self, sequence: Sequence) -> None:
        """Tell the index of the tokens computed in a block that is not full yet. The block goes on
        being written behind them."""
        block, length = divmod(sequence.num_computed, self.block_size)
        if self._prefix_caching and length:
            self._publish(sequence, block, length)

    def free(self, sequence: Sequence, written: bool = True) -> None:
        """Take all blocks back. `written`: what was computed can be found again, to the token."""
        if written:
            self.publish_tail(sequence)
        for pool, table in zip(self._pool_of, sequence.tables, strict=True):
            pool.release(table)
        del self._holders[sequence.sequence_id]
        sequence.tables, sequence.slid = [], []
        sequence.num_cached = sequence.num_computed = 0
        sequence.num_published = sequence.num_sent = 0
        sequence.is_introduced = False

    def unsent(self, sequence: Sequence) -> tuple[int, list[list[int]]]:
        """How many blocks of each table are as they were at the last call; by group, the blocks
        after these."""
        kept, sequence.num_sent = sequence.num_sent, len(sequence.tables[0])
        return kept, [table[kept:] for table in sequence.tables]

    def loaded(self, name: str, intact: bool) -> Sequence | None:
        """A block has come back, or could not. The sequence that waited for it, if it still does
        and waits for nothing else."""
        assert self._swap is not None
        self._swap.loaded(name, intact)
        load = self._loading[name].popleft()
        if not self._loading[name]:
            del self._loading[name]
        sequence, pool = load.sequence, self._pool_of[load.group]
        if intact:
            self._publish_block(load.group, load.prefix, load.number, load.block)
        pool.release([load.block])
        if self._holders.get(sequence.sequence_id) is not sequence or sequence.life != load.life:
            return None
        sequence.num_loading -= 1
        sequence.is_spoilt |= not intact
        return None if sequence.num_loading else sequence

    def count_hit(self, sequence: Sequence) -> int:
        """Tokens of a sequence without blocks that the cache holds now."""
        return self._matcher(sequence).hit().tokens

    def lost(self, sequence: Sequence) -> int:
        """Computed tokens in blocks that no other sequence holds, in the group that has most."""
        alone = (
            sum(pool.refs(block) == 1 for block in table)
            for pool, table in zip(self._pool_of, sequence.tables, strict=True)
        )
        return min(sequence.num_computed, max(alone) * self.block_size)

    def reset(self) -> bool:
        """Forget all content; False, with nothing changed, where a sequence or a load holds
        blocks."""
        if self._holders or self._loading:
            return False
        for pool in self.pools:
            pool.clear()
        if self._swap is not None:
            self._saves.clear()
            self._discards += self._swap.clear()
        return True

    def unsaved(self) -> list[Move]:
        """The full blocks that are free and cached and not in the swap tier."""
        found = []
        for (pool, block), (group, digest) in self._names.items():
            name = _name(group, digest)
            size = self._layout.pools[pool].page_bytes
            if self._swap is not None and self._swap.put(name, size):
                found.append(Move(pool, block, name))
        return found

    # ---- inside ----

    @property
    def _all_groups(self) -> range:
        return range(len(self._groups))

    def _root_of(self, request: Request) -> Mapping[str, str]:
        return self.root | {"salt": request.cache_salt}

    def _explain(self, sequence: Sequence, matcher: Matcher, hit: int) -> Miss | None:
        """Why a prompt was not found up to its last token."""
        if not self._prefix_caching:
            return "disabled"
        request = sequence.request
        run = sequence.prefix.run(0, self.block_size)
        root = self._root_of(request)
        miss = None
        if hit < sequence.num_known - 1:
            miss = self._misses.why(
                request.owner,
                run,
                root,
                hit=hit,
                missing=matcher.missing(hit),
                diverged=matcher.diverges(hit),
            )
        self._misses.began(request.owner, run, root)
        return miss

    def _gone(self, pool: int, block: int) -> None:
        """A block's content is given up."""
        group, digest = self._names.pop((pool, block), (0, b""))
        if digest:
            self._misses.evicted(digest)
            name = _name(group, digest)
            if self._swap is not None and self._swap.put(name, self._layout.pools[pool].page_bytes):
                self._saves.append(Move(pool, block, name))
        self._blank(pool, block)

    def _is_swapped(self, group: int, digest: bytes) -> bool:
        return self._swap is not None and _name(group, digest) in self._swap

    def _matcher(self, sequence: Sequence) -> Matcher:
        """At least one token is left to compute, as its logits are needed."""
        indexes = [pool.index for pool in self._pool_of]
        most = sequence.num_known - 1 if self._prefix_caching else 0
        fresh = [self._fresh[pool] for pool in self._number_of]
        swapped = self._is_swapped if self._swap is not None else None
        return Matcher(self._groups, indexes, sequence.prefix, most, fresh, swapped)

    def _adopt(self, sequence: Sequence, hit: Hit) -> None:
        for pool, table in zip(self._pool_of, hit.tables, strict=True):
            # Every hit before any allocation, which could evict it.
            pool.share(block for block in table if block != SWAPPED)
        sequence.tables = [list(table) for table in hit.tables]
        self._load(sequence)
        sequence.slid = [group.first_seen(hit.tokens) // self.block_size for group in self._groups]
        for g, tail in enumerate(hit.tails):
            if hit.tokens % self.block_size:
                [target] = self._pool_of[g].allocate(1)
                sequence.tables[g].append(target)
                self._copies.append(Copy(self._number_of[g], tail, target))
        sequence.num_published = hit.tokens // self.block_size
        sequence.num_cached = sequence.num_computed = hit.tokens
        self._holders[sequence.sequence_id] = sequence

    def _load(self, sequence: Sequence) -> None:
        """Blocks for what lies in the swap tier. The load holds them too, whatever becomes of the
        sequence."""
        sequence.life += 1
        sequence.num_loading, sequence.is_spoilt = 0, False
        for g, table in enumerate(sequence.tables):
            for number, block in enumerate(table):
                if block == SWAPPED:
                    [target] = self._pool_of[g].allocate(1)
                    self._pool_of[g].share([target])
                    table[number] = target
                    self._begin_load(_Load(sequence, sequence.life, g, number, target))

    def _begin_load(self, load: _Load) -> None:
        assert self._swap is not None
        sequence = load.sequence
        name = _name(load.group, sequence.prefix.digest(load.number + 1))
        self._swap.load(name)
        self._loading.setdefault(name, deque()).append(load)
        self._loads.append(Move(self._number_of[load.group], load.block, name))
        sequence.num_loading += 1

    def _copy(self, group: int, sequence: Sequence, block: int) -> None:
        """Give a sequence its own copy of a block that it is about to write."""
        pool, table = self._pool_of[group], sequence.tables[group]
        [target] = pool.allocate(1)
        self._copies.append(Copy(self._number_of[group], table[block], target))
        pool.release([table[block]])
        table[block] = target
        sequence.num_sent = min(sequence.num_sent, block)

    def _is_shared(self, group: int, sequence: Sequence, inside: int) -> bool:
        """Whether writing behind the first `inside` tokens of its last block would be seen by
        others."""
        pool, block = self._pool_of[group], sequence.tables[group][-1]
        return pool.refs(block) > 1 or pool.index.tokens(block) > inside

    def _publish(self, sequence: Sequence, block: int, length: int) -> None:
        for g, table in enumerate(sequence.tables):
            if table[block] != NULL_BLOCK:
                self._publish_block(g, sequence.prefix, block, table[block], length)

    def _publish_block(
        self, group: int, prefix: Prefix, number: int, block: int, length: int | None = None
    ) -> None:
        """`block` holds the first `length` tokens of a prefix' block, or all."""
        pool, whole = self._number_of[group], length is None or length == self.block_size
        length = length or self.block_size
        if not self._pool_of[group].index.publish(group, prefix, number, length, block):
            return
        if whole:
            self._names[pool, block] = group, prefix.digest(number + 1)
        if self._is_planning:
            self._fresh[pool].add(block)

    def _slide(self, sequence: Sequence) -> None:
        """Free the blocks that no token to come can see; the null block keeps their place."""
        for g, group in enumerate(self._groups):
            first = group.first_seen(sequence.num_computed) // self.block_size
            slid, table = sequence.slid[g], sequence.tables[g]
            if first > slid:
                self._pool_of[g].release(table[slid:first])
                table[slid:first] = [NULL_BLOCK] * (first - slid)
                sequence.slid[g] = first

    def _claims(self, sequences: Iterable[Sequence]) -> list[int]:
        """By pool, the blocks that sequences have a right to and do not hold yet."""
        claims = [0] * len(self.pools)
        for sequence in sequences:
            for g in self._all_groups:
                held = len(sequence.tables[g]) - sequence.slid[g]
                claim = self._claim(g, sequence, sequence.num_computed, sequence.state.unborn)
                claims[self._number_of[g]] += max(0, claim - held)
        return claims

    def _claim(self, group: int, sequence: Sequence, computed: int, unborn: int) -> int:
        """Blocks of one group that a sequence, and those to be forked from it, have a right to:
        what is known in chunks, what will be generated token by token."""
        kind, size = self._groups[group], self.block_size
        chunk = min(self._layout.chunk, max(1, sequence.num_known - computed))
        each = kind.most_blocks(sequence.claim, size, chunk)
        prompt = sequence.state.prompt_len
        shared = prompt // size - kind.first_seen(prompt) // size
        return each + unborn * max(0, each - shared)


def _name(group: int, digest: bytes) -> str:
    """Of a block in the swap tier."""
    return f"{digest.hex()}-{group}"
