"""Exact memory: bytes of weights and KV, how KV memory is cut, and what fits. Pure arithmetic.

        full attention in 4 layers, windows in 6:   groups of 2 layers, pages of equal bytes
        | null | any block of any of the 5 groups ...                     |   one pool

Layers of equal KV are cut into groups of equally many, so that all kinds of attention share one
pool and no memory is set aside for one that another could use. Where layers differ in bytes, each
kind has its own pool, cut for sequences of the longest length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from octavo.base.errors import CapacityError, ModelError
from octavo.base.kv import KVGroup, KVLayout, Pool
from octavo.base.units import show_bytes
from octavo.models.spec import ModelSpec

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}  # bytes
KV_SCALE_BYTES = {"int8": 4}  # of the scale that a token's K, and its V, has in each KV head
UNBOUNDED = 2**31  # tokens
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
) -> int:
    """Bytes of a layout that holds so many sequences of `num_tokens` each, null blocks included.

    `chunk`: tokens of a sequence that one step computes, at most.
    """
    groups, total = equal_pages(groups), 0
    for page, members in _by_page(groups, block_size).items():
        each = sum(groups[g].most_blocks(num_tokens, block_size, chunk) for g in members)
        total += page * (1 + sequences * each)
    return total


def kv_layout(
    groups: tuple[KVGroup, ...],
    block_size: int,
    budget_bytes: int,
    *,
    chunk: int = UNBOUNDED,
    longest: int = UNBOUNDED,
) -> KVLayout:
    """Cut `budget_bytes` into as many blocks as it holds. Each pool has one null block.

    `chunk`: tokens of a sequence that one step computes, at most; `longest`: tokens of one
    sequence, at most.

    Raises:
        CapacityError: not even one block per group fits.
        ModelError: a group keeps a state, which has no blocks.
    """
    for group in groups:
        if group.kind == "state":
            raise ModelError(f"KV group {group.name} keeps states: they have no blocks")
    groups, chunk = equal_pages(groups), min(chunk, longest)
    pages = _by_page(groups, block_size)

    def usable(num_blocks: int) -> list[int]:
        """By pool, where a full-attention group has so many: as many as sequences of the longest
        length take, since longer ones need the more of these the fewer there are."""
        sequences = -(-num_blocks // blocks_for(longest, block_size))
        most = [g.most_blocks(num_blocks * block_size, block_size, chunk) for g in groups]
        return [
            sum(min(num_blocks, sequences * most[g]) for g in members) for members in pages.values()
        ]

    def size(num_blocks: int) -> int:
        blocks = zip(pages, usable(num_blocks), strict=True)
        return sum(page * (1 + count) for page, count in blocks)

    if size(1) > budget_bytes:
        raise CapacityError(
            f"the KV cache needs at least {show_bytes(size(1))} for one block of {block_size} "
            f"tokens, but has {show_bytes(budget_bytes)}; use --kv-memory {_setting(size(1))}"
        )
    counts = usable(_largest(budget_bytes, lambda n: size(n) <= budget_bytes))
    if len(pages) == 1:
        counts = [budget_bytes // next(iter(pages)) - 1]
    return KVLayout(
        block_size=block_size,
        groups=groups,
        pools=tuple(
            Pool(page_bytes=page, num_blocks=count + 1, groups=tuple(members))
            for (page, members), count in zip(pages.items(), counts, strict=True)
        ),
        chunk=chunk,
    )


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
    """Groups of several kinds whose layers keep equally many bytes, cut into groups of equally
    many layers; the last of a kind may have fewer, and its pages a part that lies idle."""
    sizes = {group.bytes_per_token / max(1, len(group.layers)) for group in groups}
    if len(groups) == 1 or len(sizes) > 1:
        return groups
    counts = [len(group.layers) for group in groups]
    several = next(
        size
        for size in range(max(counts), 0, -1)
        if sum(-(-n // size) * size for n in counts) <= sum(counts) * (1 + MOST_PADDING)
    )
    return tuple(part for group in groups for part in _cut(group, several))


def _cut(group: KVGroup, size: int) -> Iterator[KVGroup]:
    for start in range(0, len(group.layers), size):
        layers = group.layers[start : start + size]
        share = group.bytes_per_token * len(layers) // len(group.layers)
        yield msgspec.structs.replace(group, layers=layers, bytes_per_token=share)


def _by_page(groups: tuple[KVGroup, ...], block_size: int) -> dict[int, list[int]]:
    """Groups by the bytes of their pages; a kind that was cut has the pages of its first part."""
    members: dict[int, list[int]] = {}
    first: dict[str, int] = {}
    for index, group in enumerate(groups):
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
