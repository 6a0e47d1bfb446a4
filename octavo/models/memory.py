"""Exact memory: bytes of weights and KV, how KV memory is cut, and what fits. Pure arithmetic.

        full attention in 4 layers, windows in 6:   groups of 2 layers, pages of equal bytes
        | null | any block of any of the 5 groups ...                     |   one pool

Layers of equal KV are cut into groups of equally many, so that all kinds of attention share one
pool and no memory is set aside for one that another could use. Where layers differ in bytes, each
kind has its own pool, cut for sequences of the longest length.

        | null | two of each sequence that runs | others, to be found again |   a pool of states
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from octavo.base.errors import CapacityError, ConfigError
from octavo.base.kv import KVGroup, KVLayout, Pool
from octavo.base.units import show_bytes
from octavo.models.spec import ModelSpec

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}  # bytes
KV_SCALE_BYTES = {"int8": 4}  # of the scale that a token's K, and its V, has in each KV head
UNBOUNDED = 2**31  # tokens
FEW_STATES = 4  # kept to be found again, at least, if there is room
MOST_PADDING = 0.05  # of a page's bytes that may lie idle so that there are fewer groups


def kv_head_bytes(kv_dtype: str, dim: int) -> int:
    """Bytes of one token's K, or V, in one KV head: `dim` numbers."""
    return dim * ITEMSIZE[kv_dtype] + KV_SCALE_BYTES.get(kv_dtype, 0)


def weight_bytes(spec: ModelSpec, itemsize: int) -> int:
    """Bytes of all parameters; a tied head counts once."""
    return spec.num_parameters * itemsize


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks of one group that `num_tokens` of one sequence take."""
    return -(-num_tokens // block_size)


def kv_bytes_for(
    groups: tuple[KVGroup, ...],
    block_size: int,
    num_tokens: int,
    *,
    sequences: int = 1,
    chunk: int = UNBOUNDED,
    state_interval: int | None = None,
) -> int:
    """Bytes of a layout that holds so many sequences of `num_tokens` each, null blocks included.

    `chunk`: tokens of a sequence that one step computes, at most; `state_interval`: tokens of these
    after which a state is kept too.
    """
    cut = _Cut(equal_pages(groups), block_size, chunk, num_tokens, state_interval)
    return cut.size_with_kept(sequences * blocks_for(num_tokens, block_size), sequences)


def kv_layout(
    groups: tuple[KVGroup, ...],
    block_size: int,
    budget_bytes: int,
    *,
    chunk: int = UNBOUNDED,
    longest: int = UNBOUNDED,
    sequences: int = 1,
    state_interval: int | None = None,
) -> KVLayout:
    """Cut `budget_bytes` into as many blocks as it holds. Each pool has one null block.

    Where states are kept, two for each sequence that runs come first; if not all of these fit with
    the longest length, for no more sequences than take half of the budget and leave room for one
    of that length. Then come blocks of attention, and a state for every `state_interval` tokens in
    them; but these leave room for one sequence of the longest length, too.

    `chunk`: tokens of a sequence that one step computes, at most; `longest`: tokens of one
    sequence, at most; `sequences`: that run at once, at most; `state_interval`: None where no state
    is to be found again.

    Raises:
        CapacityError: not even one block per group fits.
        ConfigError: states are kept at other places than the ends of blocks.
    """
    chunk = min(chunk, longest)
    cut = _Cut(equal_pages(groups), block_size, chunk, longest, state_interval)
    if cut.states and state_interval is not None and state_interval % block_size:
        raise ConfigError(
            f"state_interval must be a multiple of block_size ({block_size}), got {state_interval}"
        )
    least = cut.size(1, 1)
    if least > budget_bytes:
        raise CapacityError(
            f"the KV cache needs at least {show_bytes(least)} for {cut.least()}, but has "
            f"{show_bytes(budget_bytes)}; use --kv-memory {_setting(least)}"
        )
    running = UNBOUNDED
    if cut.states:
        running = _largest(sequences, lambda n: n == 1 or cut.can_run(n, budget_bytes))
    return KVLayout(
        block_size=block_size,
        groups=cut.groups,
        pools=cut.pools(budget_bytes, running),
        chunk=chunk,
        most_sequences=running,
        state_interval=state_interval,
    )


class _Cut:
    """How many blocks each pool has, and how many bytes that is, where a full-attention group has
    `blocks` and so many sequences are `running`. Both only grow with either."""

    def __init__(
        self,
        groups: tuple[KVGroup, ...],
        block_size: int,
        chunk: int,
        longest: int,
        state_interval: int | None,
    ) -> None:
        self.groups = groups
        self.pages = _by_page(groups, block_size)
        self.states = [g for g, group in enumerate(groups) if group.is_state]
        self.state_bytes = sum(groups[g].state_bytes for g in self.states)
        self._size, self._chunk, self._interval = block_size, chunk, state_interval
        self._longest = blocks_for(longest, block_size)

    def usable(self, blocks: int) -> list[int]:
        """By page: as many as sequences of the longest length take, since longer ones need the more
        of these the fewer there are."""
        sequences = -(-blocks // self._longest)
        tokens, size = blocks * self._size, self._size
        most = [group.most_blocks(tokens, size, self._chunk) for group in self.groups]
        return [
            sum(min(blocks, sequences * most[g]) for g in members)
            for members in self.pages.values()
        ]

    def kept(self, blocks: int) -> int:
        """States of each group to be found again, if there is room: one for every interval of
        tokens, but for no more bytes than attention keeps of the same tokens."""
        if not self.states or self._interval is None:
            return 0
        intervals = -(-blocks * self._size // self._interval)
        if self.pages:
            intervals = min(intervals, self._attention(blocks) // self.state_bytes)
        return max(FEW_STATES, intervals)

    def size(self, blocks: int, running: int, kept: int = 0) -> int:
        """The null block of states included, and two states for each sequence."""
        states = 1 + 2 * running + kept if self.states else 0
        return self._attention(blocks) + states * self.state_bytes

    def size_with_kept(self, blocks: int, running: int) -> int:
        return self.size(blocks, running, self.kept(blocks))

    def can_run(self, sequences: int, budget: int) -> bool:
        """Whether there is memory for so many of the longest sequences and what is kept of them; or
        their states leave half of it, and room for one of these."""
        if self.size_with_kept(sequences * self._longest, sequences) <= budget:
            return True
        half = 4 * sequences * self.state_bytes <= budget
        return half and self.size(self._longest, sequences) <= budget

    def pools(self, budget: int, running: int) -> tuple[Pool, ...]:
        """As many blocks as a budget holds: pools of attention, then one for each state group."""
        if not self.pages:
            keeps = self._interval is not None
            return self._state_pools(budget // self.state_bytes if keeps else 1 + 2 * running)
        blocks = self._most_blocks(budget, running)
        states = self._num_states(blocks, budget, running) if self.states else 0
        counts = [1 + count for count in self.usable(blocks)]
        if len(self.pages) == 1:  # windows may take what is left, too
            counts = [(budget - states * self.state_bytes) // next(iter(self.pages))]
        attention = (
            Pool(page_bytes=page, num_blocks=count, groups=tuple(members))
            for (page, members), count in zip(self.pages.items(), counts, strict=True)
        )
        return (*attention, *self._state_pools(states))

    def least(self) -> str:
        """What the smallest cache holds, in words."""
        block = f"one block of {self._size} tokens"
        if not self.states:
            return block
        return f"{block} and 3 states" if self.pages else "3 states"

    def _most_blocks(self, budget: int, running: int) -> int:
        """As many as a budget holds with the states kept for them, or one long sequence takes."""
        needed = min(self._longest, budget)
        return max(
            _largest(needed, lambda n: self.size(n, running) <= budget),
            _largest(budget, lambda n: self.size_with_kept(n, running) <= budget),
        )

    def _num_states(self, blocks: int, budget: int, running: int) -> int:
        """Of each group. As many are kept as the blocks leave room for."""
        room = (budget - self.size(blocks, running)) // self.state_bytes
        return 1 + 2 * running + min(self.kept(blocks), room)

    def _state_pools(self, count: int) -> tuple[Pool, ...]:
        return tuple(
            Pool(page_bytes=self.groups[g].state_bytes, num_blocks=count, groups=(g,))
            for g in self.states
        )

    def _attention(self, blocks: int) -> int:
        counts = zip(self.pages, self.usable(blocks), strict=True)
        return sum(page * (1 + count) for page, count in counts)


def check_fit(layout: KVLayout, budget_bytes: int, max_model_len: int) -> None:
    """Raises CapacityError where not even one sequence of `max_model_len` tokens fits; it names
    what is needed, what there is, and the smallest changes that would fit."""
    if layout.sequences(max_model_len):
        return
    needed = kv_bytes_for(layout.groups, layout.block_size, max_model_len, chunk=layout.chunk)
    raise CapacityError(
        f"one sequence of {max_model_len} tokens needs {show_bytes(needed)} of KV cache, which has "
        f"{show_bytes(budget_bytes)}; use --kv-memory {_setting(needed)} "
        f"or --max-model-len {longest_sequence(layout)}"
    )


def longest_sequence(layout: KVLayout) -> int | None:
    """Tokens of one sequence that fit; None where there is no limit, as with windows alone."""
    if layout.sequences(UNBOUNDED):
        return None
    return _largest(UNBOUNDED, lambda tokens: layout.sequences(tokens) > 0)


def equal_pages(groups: tuple[KVGroup, ...]) -> tuple[KVGroup, ...]:
    """Groups of several kinds of attention whose layers keep equally many bytes, cut into groups
    of equally many layers; the last of a kind may have fewer, and its pages a part that lies
    idle."""
    kinds = [group for group in groups if not group.is_state]
    sizes = {group.bytes_per_token / max(1, len(group.layers)) for group in kinds}
    if len(kinds) < 2 or len(sizes) > 1 or any(group.uneven for group in kinds):
        return groups
    counts = [len(group.layers) for group in kinds]
    several = next(
        size
        for size in range(max(counts), 0, -1)
        if sum(-(-n // size) * size for n in counts) <= sum(counts) * (1 + MOST_PADDING)
    )
    return tuple(part for group in groups for part in _cut(group, several))


def _cut(group: KVGroup, size: int) -> Iterator[KVGroup]:
    if group.is_state:
        yield group
        return
    for start in range(0, len(group.layers), size):
        layers = group.layers[start : start + size]
        share = group.bytes_per_token * len(layers) // len(group.layers)
        yield msgspec.structs.replace(group, layers=layers, bytes_per_token=share)


def _by_page(groups: tuple[KVGroup, ...], block_size: int) -> dict[int, list[int]]:
    """Groups of attention by the bytes of their pages; a kind that was cut has the pages of its
    first part."""
    members: dict[int, list[int]] = {}
    first: dict[str, int] = {}
    for index, group in enumerate(groups):
        if group.is_state:
            continue
        page = first.setdefault(group.name, group.page_bytes(block_size))
        members.setdefault(page, []).append(index)
    return members


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` that fits; every smaller one does, and 1 does."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _setting(count: int) -> str:
    """Bytes as an option's value that is never less: in whole MiB, or exact below one."""
    return str(count) if count < 2**20 else f"{-(-count // 2**20)}MiB"
