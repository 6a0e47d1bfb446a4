"""Block tables: which blocks each sequence holds, in every KV group.

Knows pools, content and tables; not who should run. A call that cannot be met changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Several

from octavo.base.kv import KVLayout
from octavo.base.plan import StepPlan
from octavo.core.block_pool import NULL_BLOCK
from octavo.core.match import SWAPPED, Hit
from octavo.core.moves import Load, Moves
from octavo.core.prefix_cache import PrefixCache
from octavo.core.sequence import Sequence
from octavo.core.state_blocks import StateBlocks
from octavo.core.swap import SwapDirectory


class KVManager:
    """Allocates, shares, copies and frees the KV blocks of sequences.

    Args:
        layout: groups and pools, as allocated on the device.
        root: all that KV depends on besides tokens and the request, by name.
        prefix_caching: whether content is published and looked for.
        prefix_index: "hash" or "radix".
        swap: what the swap tier holds, if there is one; not where states are kept.
        blank: called with (pool, block) whose content nobody can find any more.
        generated: tokens that a sequence may be planned to generate at once, drafts included.
    """

    def __init__(
        self,
        layout: KVLayout,
        root: Mapping[str, str],
        prefix_caching: bool = True,
        prefix_index: str = "hash",
        swap: SwapDirectory | None = None,
        blank: Callable[[int, int], None] = lambda pool, block: None,
        generated: int = 1,
    ) -> None:
        assert swap is None or not layout.state_pools, "blocks would come back without their states"
        assert generated == 1 or not layout.state_pools, "a state cannot go back"
        self._generated = generated
        self._moves = Moves(swap)
        self.cache = PrefixCache(layout, root, prefix_caching, prefix_index, self._moves, blank)
        self.block_size = layout.block_size
        self.states = StateBlocks(layout, self.cache)
        self.pools = self.cache.pools
        self._layout = layout
        self._groups = layout.groups
        self._number_of = [layout.pool_of(g) for g in range(len(layout.groups))]  # of the pool
        self._pool_of = [self.pools[p] for p in self._number_of]
        self._attention = [g for g, group in enumerate(self._groups) if not group.is_state]
        state_pools = self.states.groups.values()
        self.attention_pools = [pool for pool in self.pools if pool not in state_pools]
        self._windows = [(g, group) for g, group in enumerate(self._groups) if group.window]
        self._holders: dict[int, Sequence] = {}  # sequences that have blocks

    def complete(self, plan: StepPlan) -> StepPlan:
        """The plan with all that must be moved."""
        return self._moves.complete(plan)

    @property
    def is_loading(self) -> bool:
        return self._moves.is_loading

    def admit(self, sequence: Sequence, watermark: float) -> bool:
        """Give a sequence what the cache holds of it.

        False, with nothing changed, unless in every pool of attention all that it may claim is free
        besides the claims of others and the watermark (a share of the pool). A hit that lies in the
        free list counts as wanted: taking it makes the free list shorter. For states there is room
        as long as no more than `states.most_sequences` have blocks.
        """
        assert not sequence.tables, f"sequence {sequence.sequence_id} has blocks already"
        matcher = self.cache.matcher(sequence.prefix, sequence.most_hit)
        hit = matcher.hit()
        wanted = self._claims(self._holders.values())
        unborn = sequence.state.unborn if self._holders else 0  # alone, it may always begin
        for g in self._attention:
            in_use = sum(block > 0 and self._pool_of[g].refs(block) > 0 for block in hit.tables[g])
            wanted[self._number_of[g]] += self._claim(g, sequence, hit.tokens, unborn) - in_use
        for number in {self._number_of[g] for g in self._attention}:
            pool = self.pools[number]
            if wanted[number] + int(watermark * pool.num_blocks) > pool.num_free:
                return False
        if sequence.state.prompt_hit is None:
            sequence.state.miss = self.cache.explain(
                sequence.request, sequence.prefix, matcher, hit.tokens, sequence.most_hit
            )
        self._adopt(sequence, hit)
        return True

    def extend(self, sequence: Sequence, upto: int) -> bool:
        """Blocks for a sequence's first `upto` tokens, of which the uncomputed ones will be
        written, and for the state after them; what slid out of windows is freed. False if there are
        not enough besides what others have reserved."""
        self._slide(sequence)
        block, inside = divmod(sequence.num_computed, self.block_size)
        shared = [g for g in self._attention if self._is_shared(g, sequence, block, inside)]
        if not self._grow(sequence, upto, shared):
            return False
        for g in shared:
            self._copy(g, sequence, block)
        self.states.extend(sequence)
        return True

    def extend_for_drafts(self, sequence: Sequence, upto: int) -> bool:
        """Blocks for drafts behind a row that `extend` was called for: up to token `upto`."""
        return self._grow(sequence, upto, ())

    def trim(self, sequence: Sequence) -> None:
        """Take back the blocks of drafts that were not accepted."""
        upto = sequence.num_expected - 1
        kept = -(-upto // self.block_size)
        for g in self._attention:
            self._pool_of[g].release(sequence.tables[g][kept:])
            del sequence.tables[g][kept:]
        sequence.num_sent = min(sequence.num_sent, kept)

    def settle(self, written: bool) -> None:
        """The oldest step is over, see `PrefixCache.settle`; if it failed, its sequences must be
        freed, and those of later steps."""
        self.cache.settle(written)
        if written:
            self.states.settle(self._holders.values())

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """`child` begins with all that `parent` has computed; they share every block of it."""
        child.tables = [list(table) for table in parent.tables]
        for g in self._attention:
            del child.tables[g][-(-parent.num_computed // self.block_size) :]
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
        for block in range(sequence.num_published, full):
            self._publish(sequence, block, self.block_size)
        sequence.num_published = full
        self.states.publish_due(sequence)

    def publish_tail(self, sequence: Sequence) -> None:
        """Tell the index of the tokens computed in a block that is not full yet, and of the state
        after them. The block goes on being written behind them; a state is never written again."""
        self.states.publish(sequence)
        block, length = divmod(sequence.num_computed, self.block_size)
        if length and block not in sequence.prefix.keys:
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
        after these, and all of a state group."""
        kept, sequence.num_sent = sequence.num_sent, self._num_blocks(sequence)
        unsent = [table[kept:] for table in sequence.tables]
        for g in self.states.groups:
            unsent[g] = list(sequence.tables[g])
        return kept, unsent

    def loaded(self, name: str, intact: bool) -> Sequence | None:
        """A block has come back, or could not. The sequence that waited for it, if it still does
        and waits for nothing else."""
        load = self._moves.loaded(name, intact)
        if intact:
            whole = self.block_size
            self.cache.publish(load.group, load.prefix, load.number, load.block, whole)
        self._pool_of[load.group].release([load.block])
        if not load.is_awaited:
            return None
        sequence = load.sequence
        sequence.num_loading -= 1
        sequence.is_spoilt |= not intact
        return None if sequence.num_loading else sequence

    def count_hit(self, sequence: Sequence) -> int:
        """Tokens of a sequence without blocks that the cache holds now."""
        return self.cache.matcher(sequence.prefix, sequence.most_hit).hit().tokens

    def lost(self, sequence: Sequence) -> int:
        """Computed tokens in blocks that no other sequence holds, in the group that has most."""
        alone = (
            sum(self._pool_of[g].refs(block) == 1 for block in sequence.tables[g])
            for g in self._attention
        )
        return min(sequence.num_computed, max(alone, default=0) * self.block_size)

    def reset(self) -> bool:
        """Forget all content; False, with nothing changed, where a sequence or a load holds
        blocks."""
        if self._holders or self.is_loading:
            return False
        self.cache.clear()
        return True

    # ---- inside ----

    def _adopt(self, sequence: Sequence, hit: Hit) -> None:
        for pool, table in zip(self._pool_of, hit.tables, strict=True):
            # Every hit before any allocation, which could evict it.
            pool.share(block for block in table if block != SWAPPED)
        sequence.tables = [list(table) for table in hit.tables]
        self._load(sequence)
        sequence.slid = [group.first_seen(hit.tokens) // self.block_size for group in self._groups]
        for g in self._attention if hit.tokens % self.block_size else ():
            [target] = self._pool_of[g].allocate(1)
            sequence.tables[g].append(target)
            self._moves.copy(self._number_of[g], hit.tails[g], target)
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
                    load = Load(sequence, sequence.life, sequence.prefix, g, number, target)
                    self._moves.load(load, self._number_of[g])
                    sequence.num_loading += 1

    def _copy(self, group: int, sequence: Sequence, block: int) -> None:
        """Give a sequence its own copy of a block that it is about to write."""
        pool, table = self._pool_of[group], sequence.tables[group]
        [target] = pool.allocate(1)
        self._moves.copy(self._number_of[group], table[block], target)
        pool.release([table[block]])
        table[block] = target
        sequence.num_sent = min(sequence.num_sent, block)

    def _is_shared(self, group: int, sequence: Sequence, number: int, inside: int) -> bool:
        """Whether writing behind the first `inside` tokens of a block would be seen by others; it
        is not there yet, or its own, where that is none."""
        if not inside:
            return False
        block = sequence.tables[group][number]
        return self._pool_of[group].refs(block) > 1 or self.cache.tokens(group, block) > inside

    def _num_blocks(self, sequence: Sequence) -> int:
        """Blocks in each table of attention."""
        return len(sequence.tables[self._attention[0]]) if self._attention else 0

    def _publish(self, sequence: Sequence, block: int, length: int) -> None:
        for g in self._attention:
            held = sequence.tables[g][block]
            if held != NULL_BLOCK:
                self.cache.publish(g, sequence.prefix, block, held, length)

    def _grow(self, sequence: Sequence, upto: int, shared: Several[int]) -> bool:
        """Blocks up to token `upto`; False, with nothing changed, if there are not as many, and one
        more for each group that must copy one."""
        missing = max(0, -(-upto // self.block_size) - self._num_blocks(sequence))
        if (missing or shared) and not self._are_free(sequence, missing, shared):
            return False
        for g in self._attention if missing else ():
            sequence.tables[g].extend(self._pool_of[g].allocate(missing))
        return True

    def _are_free(self, sequence: Sequence, missing: int, shared: Several[int]) -> bool:
        """Whether every group has so many blocks besides what others have reserved, and one more
        where it must copy one."""
        wanted = [0] * len(self.pools)
        if not sequence.reserves:
            wanted = self._claims(s for s in self._holders.values() if s.reserves)
        for g in self._attention:
            wanted[self._number_of[g]] += missing + (g in shared)
        return all(n <= p.num_free for n, p in zip(wanted, self.pools, strict=True))

    def _slide(self, sequence: Sequence) -> None:
        """Free the blocks that no token to come can see; the null block keeps their place."""
        for g, group in self._windows:
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
            for g in self._attention:
                held = len(sequence.tables[g]) - sequence.slid[g]
                claim = self._claim(g, sequence, sequence.num_computed, sequence.state.unborn)
                claims[self._number_of[g]] += max(0, claim - held)
        return claims

    def _claim(self, group: int, sequence: Sequence, computed: int, unborn: int) -> int:
        """Blocks of one group that a sequence, and those to be forked from it, have a right to:
        what is known in chunks, what will be generated a few tokens at a time."""
        kind, size = self._groups[group], self.block_size
        chunk = min(self._layout.chunk, max(self._generated, sequence.num_known - computed))
        each = kind.most_blocks(sequence.claim, size, chunk)
        prompt = sequence.state.prompt_len
        shared = prompt // size - kind.first_seen(prompt) // size
        return each + unborn * max(0, each - shared)
