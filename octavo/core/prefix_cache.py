"""What blocks hold: content is published, looked for, missed, and given up. Knows no tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from octavo.base.kv import KVLayout, Pool
from octavo.base.request import Request
from octavo.core.block_pool import BlockPool, LeastRecentlyUsed
from octavo.core.match import Matcher
from octavo.core.miss import Miss, Misses
from octavo.core.moves import Moves, swap_name
from octavo.core.prefix import Prefix, root_digest
from octavo.core.prefix_index import PrefixIndex
from octavo.core.prefix_indexes import PREFIX_INDEXES
from octavo.core.state_index import StateIndex


class PrefixCache:
    """The content of all pools' blocks.

    Args:
        layout: groups and pools.
        root: all that KV depends on besides tokens and the request, by name.
        enabled: whether content is published and looked for.
        index: "hash" or "radix".
        moves: where a swap tier is told of what is given up.
        blank: called with (pool, block) whose content nobody can find any more.
    """

    def __init__(
        self,
        layout: KVLayout,
        root: Mapping[str, str],
        enabled: bool,
        index: str,
        moves: Moves,
        blank: Callable[[int, int], None],
    ) -> None:
        self.pools: list[BlockPool] = []
        self._indexes: dict[int, PrefixIndex] = {}  # by group of attention
        self._states: dict[int, StateIndex] = {}  # by group of states
        for pool in layout.pools:
            self.pools.append(self._pool(pool, index, layout))
        self._root = dict(root)
        self.blank = blank
        self._layout = layout
        self.enabled = enabled
        self._moves = moves
        self._number_of = [layout.pool_of(g) for g in range(len(layout.groups))]  # of the pool
        # Of full blocks and states that can be found: (pool, block) -> group, digest.
        self._names: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._misses = Misses()
        # Of each step that is planned or under way, the oldest first: by pool, what it will have
        # written.
        self._fresh: deque[list[set[int]]] = deque()

    @property
    def epoch(self) -> str:
        """Says of which weights what is published is."""
        return self._root.get("epoch", "")

    def begin_epoch(self, epoch: str) -> None:
        self._root["epoch"] = epoch

    def prefix(self, request: Request, token_ids: list[int]) -> Prefix:
        """Of a sequence of this request."""
        root = root_digest(self._root_of(request))
        return Prefix(root, self._layout.block_size, token_ids, request.block_keys)

    def begin(self) -> None:
        """A step is being planned: what is published from now on is not written yet."""
        self._fresh.append([set() for _ in self.pools])

    def settle(self, written: bool) -> None:
        """The oldest step is over. What it published stays if it was `written`, else it is
        forgotten, whoever holds it by now, and so is what later steps have published."""
        if not written:
            for step in self._fresh:
                self._retract(step)
        self._fresh.popleft()

    def publish(self, group: int, prefix: Prefix, number: int, block: int, length: int) -> None:
        """`block` holds the first `length` tokens of block `number` of a prefix."""
        if not self.enabled:
            return
        if self._indexes[group].publish(group, prefix, number, length, block):
            whole = length == self._layout.block_size
            self._published(group, block, prefix.digest(number + 1) if whole else b"")

    def publish_state(self, group: int, prefix: Prefix, tokens: int, block: int) -> None:
        """`block` is the state after the first `tokens` of a prefix."""
        if self.enabled and self._states[group].publish(prefix, tokens, block):
            self._published(group, block, prefix.digest(tokens // self._layout.block_size))

    def has_state(self, group: int, prefix: Prefix, tokens: int) -> bool:
        """Whether the state after exactly so many tokens of a prefix can be found."""
        return self._states[group].holds(prefix, tokens)

    def tokens(self, group: int, block: int) -> int:
        """How many of the first tokens in a block of attention can be found."""
        return self._indexes[group].tokens(block)

    def matcher(self, prefix: Prefix, most: int) -> Matcher:
        """A look at what is there of the first `most` tokens, while a step is planned or not."""
        fresh = self._fresh[-1] if self._fresh else [set() for _ in self.pools]
        return Matcher(
            self._layout.groups,
            self._indexes,
            self._states,
            prefix,
            most if self.enabled else 0,
            [fresh[pool] for pool in self._number_of],
            self._is_swapped if self._moves.directory is not None else None,
        )

    def explain(
        self, request: Request, prefix: Prefix, matcher: Matcher, hit: int, most: int
    ) -> Miss | None:
        """Why a prompt that starts was found for `hit` tokens only; None where that is all that
        could be: `most`."""
        if not self.enabled:
            return "disabled"
        run, root = prefix.run(0, prefix.block_size), self._root_of(request)
        miss = None
        if hit < most:
            miss = self._misses.why(
                request.owner,
                run,
                root,
                hit=hit,
                missing=matcher.missing(hit),
                diverged=matcher.diverges(),
                stateless=matcher.lacks_state(hit),
            )
        self._misses.began(request.owner, run, root)
        return miss

    def clear(self) -> None:
        """Forget everything; no block may be in use."""
        for pool in self.pools:
            pool.clear()
        self._moves.forget()

    def named(self) -> list[tuple[int, int, str]]:
        """Pool, block and name of each full block that the swap tier lacks."""
        written = (item for item in self._names.items() if self._is_written(*item[0]))
        named = ((*at, swap_name(*name)) for at, name in written)
        return [(pool, block, name) for pool, block, name in named if not self._moves.has(name)]

    def _root_of(self, request: Request) -> Mapping[str, str]:
        """Without a salt, requests share with those of their owner alone."""
        own = "" if request.cache_salt else request.owner
        return self._root | {
            "adapter": request.adapter,
            "salt": request.cache_salt,
            "owner": own,
        }

    def _pool(self, pool: Pool, index: str, layout: KVLayout) -> BlockPool:
        """Empty, with an index for its groups."""
        gone = partial(self._gone, len(self.pools))
        if layout.groups[pool.groups[0]].is_state:
            states = StateIndex()
            self._states.update(dict.fromkeys(pool.groups, states))
            return BlockPool(pool.num_blocks, states, LeastRecentlyUsed(), gone)
        blocks, order = PREFIX_INDEXES[index](layout.block_size)
        self._indexes.update(dict.fromkeys(pool.groups, blocks))
        return BlockPool(pool.num_blocks, blocks, order, gone)

    def _published(self, group: int, block: int, digest: bytes) -> None:
        """`digest`: of the full blocks that a block completes, or that a state has seen."""
        pool = self._number_of[group]
        if digest:
            self._names[pool, block] = group, digest
        if self._fresh:
            self._fresh[-1][pool].add(block)

    def _retract(self, step: list[set[int]]) -> None:
        for number, (pool, fresh) in enumerate(zip(self.pools, step, strict=True)):
            for block in fresh:
                self._names.pop((number, block), None)  # it has no content to be kept
                pool.forget(block)
            fresh.clear()

    def _gone(self, pool: int, block: int) -> None:
        """A block's content is given up."""
        group, digest = self._names.pop((pool, block), (0, b""))
        if digest:
            self._misses.evicted(digest)
            if self._is_written(pool, block):
                size = self._layout.pools[pool].page_bytes
                self._moves.save(pool, block, swap_name(group, digest), size)
        self.blank(pool, block)

    def _is_written(self, pool: int, block: int) -> bool:
        """Whether no step that is planned or under way has published it."""
        return not any(block in step[pool] for step in self._fresh)

    def _is_swapped(self, group: int, digest: bytes) -> bool:
        return self._moves.has(swap_name(group, digest))
