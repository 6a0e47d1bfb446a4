"""The KV cache of the native path: one allocation a pool, cut into pages as the memory plan says.

        page  | K of layer a | V of a | K of layer b | V of b | ...   of the page's group

Inside, K and V lie as the attention kernel reads them; see csrc/kv_pages.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.errors import ConfigError
from octavo.base.kv import KVLayout
from octavo.models.memory import kv_head_bytes
from octavo.models.spec import ModelSpec
from octavo.native.interface import Memory, Native
from octavo.weights.formats import FLOAT_FORMATS

KV_FORMATS = {**FLOAT_FORMATS, "int8": "int8"}  # by dtype
SUB_BLOCK = 16  # tokens that lie together


@dataclass(frozen=True, slots=True)
class LayerPages:
    """Where one layer's K and V lie in the pages of its group."""

    memory: Memory
    page_bytes: int
    k_offset: int
    v_offset: int
    group: int


def allocate(
    native: Native, spec: ModelSpec, layout: KVLayout, kv_dtype: str
) -> tuple[list[Memory], list[LayerPages]]:
    """The pools' memory, and every layer's place in order of layers.

    Raises:
        ConfigError: the kernels cannot read blocks of this size.
    """
    if layout.block_size % SUB_BLOCK:
        raise ConfigError(
            f"block_size must be a multiple of {SUB_BLOCK} on the CPU, got {layout.block_size}"
        )
    pools = [native.Memory(pool.page_bytes * pool.num_blocks) for pool in layout.pools]
    places: dict[int, LayerPages] = {}
    for g, group in enumerate(layout.groups):
        pool = layout.pools[layout.pool_of(g)]
        start = 0
        for n in group.layers:
            attention = spec.layers[n].attention
            slots = attention.num_kv_heads * layout.block_size
            middle = start + slots * kv_head_bytes(kv_dtype, attention.head_dim)
            places[n] = LayerPages(pools[layout.pool_of(g)], pool.page_bytes, start, middle, g)
            start = middle + slots * kv_head_bytes(kv_dtype, attention.v_head_dim)
        assert start == group.page_bytes(layout.block_size) <= pool.page_bytes, (start, pool)
    return pools, [places[n] for n in range(len(spec.layers))]
