"""Exact memory: bytes of weights and KV, how KV memory is cut, and what fits. Pure arithmetic.

        pool of page P, groups a and b, n usable blocks each, laid out in one allocation:

        | null | a and b's blocks: 2 n |      (2 n + 1) x P bytes

Every group keeps all blocks of a sequence until it ends, so that a sequence takes the same number
of blocks of each group, and every group gets the same number of usable ones.
"""

from __future__ import annotations

import math

from octavo.base.errors import CapacityError, ModelError
from octavo.base.kv import KVGroup, KVLayout, Pool
from octavo.base.units import show_bytes
from octavo.models.spec import ModelSpec

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}  # bytes
KV_SCALE_BYTES = {"int8": 4}  # of the scale that a token's K, and its V, has in each KV head


def kv_head_bytes(kv_dtype: str, dim: int) -> int:
    """Bytes of one token's K, or V, in one KV head: `dim` numbers."""
    return dim * ITEMSIZE[kv_dtype] + KV_SCALE_BYTES.get(kv_dtype, 0)


def num_parameters(spec: ModelSpec) -> int:
    return sum(math.prod(param.shape) for param in spec.params())


def weight_bytes(spec: ModelSpec, itemsize: int) -> int:
    """Bytes of all parameters; a tied head counts once."""
    return num_parameters(spec) * itemsize


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks of one group that `num_tokens` of one sequence take."""
    return -(-num_tokens // block_size)


def kv_bytes_for(groups: tuple[KVGroup, ...], block_size: int, num_blocks: int) -> int:
    """Bytes of a layout with `num_blocks` usable blocks in each group, null blocks included."""
    pages = [group.page_bytes(block_size) for group in groups]
    return num_blocks * sum(pages) + sum(set(pages))


def kv_layout(groups: tuple[KVGroup, ...], block_size: int, budget_bytes: int) -> KVLayout:
    """Cut `budget_bytes` into as many blocks as it holds, equally many for each group.

    Groups whose pages have equal bytes share one pool; each pool has one null block.

    Raises:
        CapacityError: not even one block per group fits.
        ModelError: a group keeps a state, which has no blocks.
    """
    for group in groups:
        if group.kind == "state":
            raise ModelError(f"KV group {group.name} keeps states: they have no blocks")
    null_bytes = kv_bytes_for(groups, block_size, 0)
    num_blocks = (budget_bytes - null_bytes) // (kv_bytes_for(groups, block_size, 1) - null_bytes)
    if num_blocks < 1:
        least = kv_bytes_for(groups, block_size, 1)
        raise CapacityError(
            f"the KV cache needs at least {show_bytes(least)} for one block of {block_size} "
            f"tokens, but has {show_bytes(budget_bytes)}; use --kv-memory {_setting(least)}"
        )
    return KVLayout(
        block_size=block_size, groups=groups, pools=_pools(groups, block_size, num_blocks)
    )


def check_fit(layout: KVLayout, budget_bytes: int, max_model_len: int) -> None:
    """Raises CapacityError where not even one sequence of `max_model_len` tokens fits; it names
    what is needed, what there is, and the smallest changes that would fit."""
    if layout.max_tokens >= max_model_len:
        return
    num_blocks = blocks_for(max_model_len, layout.block_size)
    needed = kv_bytes_for(layout.groups, layout.block_size, num_blocks)
    raise CapacityError(
        f"one sequence of {max_model_len} tokens needs {show_bytes(needed)} of KV cache, which has "
        f"{show_bytes(budget_bytes)}; use --kv-memory {_setting(needed)} "
        f"or --max-model-len {layout.max_tokens}"
    )


def full_length_requests(layout: KVLayout, max_model_len: int) -> int:
    """How many sequences of `max_model_len` tokens fit at once."""
    num_blocks = layout.max_tokens // layout.block_size
    return num_blocks // blocks_for(max_model_len, layout.block_size)


def _pools(groups: tuple[KVGroup, ...], block_size: int, num_blocks: int) -> tuple[Pool, ...]:
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group.page_bytes(block_size), []).append(index)
    return tuple(
        Pool(page_bytes=page, num_blocks=num_blocks * len(mine) + 1, groups=tuple(mine))
        for page, mine in members.items()
    )


def _setting(count: int) -> str:
    """Bytes as an option's value that is never less: in whole MiB, or exact below one."""
    return str(count) if count < 2**20 else f"{-(-count // 2**20)}MiB"
