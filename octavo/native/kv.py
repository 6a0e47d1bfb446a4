"""The KV cache of the native path: one allocation a pool, cut into pages as the memory plan says.

        page  | K of layer a | V of a | K of layer b | V of b | ...   of the page's group

Inside, K and V lie as the attention kernel reads them; see csrc/kv_pages.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from octavo.base.kv import KVLayout
from octavo.models.memory import ITEMSIZE, kv_head_bytes
from octavo.models.spec import AttendSpec
from octavo.native.interface import Memory, Native
from octavo.weights.formats import FLOAT_FORMATS

KV_FORMATS = {**FLOAT_FORMATS, "int8": "int8"}  # by dtype


@dataclass(frozen=True, slots=True)
class LayerPages:
    """Where one layer's K and V, or its state, lie in the pages of its group."""

    memory: Memory
    page_bytes: int
    group: int
    offsets: tuple[int, ...]  # of K, and of V where it is kept; or of the state


@dataclass(frozen=True)
class KVMemory:
    """The pools' memory, and by layer where its KV and its state lie."""

    pools: list[Memory]
    attention: dict[int, LayerPages]
    states: dict[int, LayerPages]

    def behind(self, layers: int) -> KVMemory:
        """The attention of those behind the first `layers`, counted from 0."""
        mine = {n - layers: place for n, place in self.attention.items() if n >= layers}
        return KVMemory(self.pools, mine, {})


def allocate(
    native: Native,
    layout: KVLayout,
    kv_dtype: str,
    attends: Mapping[int, AttendSpec],
    kept: Mapping[int, int],
) -> KVMemory:
    """`attends`: by layer, of those with keys and values; `kept`: numbers of those with a state.
    Blocks are of a size that `needs` says."""
    made = KVMemory([native.Memory(p.page_bytes * p.num_blocks) for p in layout.pools], {}, {})
    for g, group in enumerate(layout.groups):
        pool, start = layout.pool_of(g), 0
        page_bytes = layout.pools[pool].page_bytes
        for n in group.layers:
            if group.is_state:
                places, sizes = made.states, [kept[n] * ITEMSIZE["float32"]]
            else:
                places, sizes = made.attention, _sizes(attends[n], layout, kv_dtype)
            offsets = tuple(accumulate(sizes, initial=start))
            places[n] = LayerPages(made.pools[pool], page_bytes, g, offsets[:-1])
            start = offsets[-1]
        assert start == group.page_bytes(layout.block_size) <= page_bytes, (start, page_bytes)
    return made


def _sizes(spec: AttendSpec, layout: KVLayout, kv_dtype: str) -> list[int]:
    slots = spec.num_kv_heads * layout.block_size
    return [slots * kv_head_bytes(kv_dtype, dim) for dim in spec.kept_dims]
