"""Attention over paged KV in plain torch: what every faster backend must equal.

A row's blocks are gathered into one contiguous run of exactly the tokens it sees, so slots that
were never written are never read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from octavo.attention.batch import AttentionBatch
from octavo.base.kv import KVLayout
from octavo.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One row of the step, for one KV group."""

    tokens: slice  # of the step's tokens
    blocks: torch.Tensor  # [blocks seen] int64
    context: int  # tokens seen by the last token
    masks: dict[int | None, torch.Tensor | None]  # by window: [tokens, context] bool, None: all


@dataclass(frozen=True, slots=True)
class GroupPlan:
    blocks: torch.Tensor  # [T] int64: where each token's K and V go
    offsets: torch.Tensor  # [T] int64
    rows: list[RowPlan]


class ReferenceAttention:
    """A pool is one tensor of pages, each as the memory plan counts it:

        page  | K of layer a | V of a | K of layer b | V of b | ...   of the page's group

    K: [block_size, num_kv_heads, head_dim] a layer, V likewise. Groups that share a pool never
    share a block, so each reads a page in its own way.
    """

    def __init__(
        self, spec: ModelSpec, layout: KVLayout, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._device = device
        self._specs = [layer.attention for layer in spec.layers]
        self._block_size = layout.block_size
        self._group_of = {n: g for g, group in enumerate(layout.groups) for n in group.layers}
        self.pools = [
            torch.empty(
                (pool.num_blocks, pool.page_bytes // dtype.itemsize), dtype=dtype, device=device
            )
            for pool in layout.pools
        ]
        self._caches: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for g, group in enumerate(layout.groups):
            self._cut(self.pools[layout.pool_of(g)], group.layers)

    def _cut(self, pages: torch.Tensor, layers: Iterable[int]) -> None:
        """K and V of each layer, [blocks, block_size, num_kv_heads, dim], as views of pages."""
        start = 0
        for n in layers:
            spec, views = self._specs[n], []
            for dim in (spec.head_dim, spec.v_head_dim):
                shape = (self._block_size, spec.num_kv_heads, dim)
                part = pages[:, start : start + math.prod(shape)]
                views.append(part.view(len(pages), *shape))
                start += math.prod(shape)
            self._caches[n] = (views[0], views[1])
        assert start <= pages.shape[1], f"a page of {pages.shape[1]} elements, {start} used"

    def plan(self, batch: AttentionBatch) -> list[GroupPlan]:
        return [self._plan_group(batch, g) for g in range(len(batch.tables))]

    def run(
        self,
        plan: list[GroupPlan],
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> torch.Tensor:
        group, spec = plan[self._group_of[layer]], self._specs[layer]
        keys, values = self._caches[layer]
        keys[group.blocks, group.offsets] = k
        values[group.blocks, group.offsets] = v
        out = q.new_empty((*q.shape[:2], spec.v_head_dim))
        for row in group.rows:
            out[row.tokens] = F.scaled_dot_product_attention(
                q[row.tokens].transpose(0, 1)[None],
                keys[row.blocks].flatten(0, 1)[: row.context].transpose(0, 1)[None],
                values[row.blocks].flatten(0, 1)[: row.context].transpose(0, 1)[None],
                attn_mask=self._mask(row, spec.window),
                scale=spec.scale,
                enable_gqa=spec.num_heads != spec.num_kv_heads,
            )[0].transpose(0, 1)
        return out

    def _plan_group(self, batch: AttentionBatch, group: int) -> GroupPlan:
        rows = []
        for r, context in enumerate(batch.context_lens.tolist()):
            blocks = batch.tables[group][r, : -(-context // self._block_size)]
            rows.append(
                RowPlan(
                    slice(int(batch.row_starts[r]), int(batch.row_starts[r + 1])),
                    torch.from_numpy(blocks.astype("int64")).to(self._device),
                    context,
                    {},
                )
            )
        slots = torch.from_numpy(batch.slots(group)).to(self._device)
        return GroupPlan(slots // self._block_size, slots % self._block_size, rows)

    def _mask(self, row: RowPlan, window: int | None) -> torch.Tensor | None:
        """Which keys each of the row's tokens sees; made for the first layer that asks."""
        if window not in row.masks:
            length = row.tokens.stop - row.tokens.start
            row.masks[window] = _visible(length, row.context, window, self._device)
        return row.masks[window]


def _visible(
    length: int, context: int, window: int | None, device: torch.device
) -> torch.Tensor | None:
    """[length, context] bool; None where the last `length` of `context` tokens see everything."""
    if length == 1 and (window is None or context <= window):
        return None
    query = torch.arange(context - length, context, device=device)[:, None]
    key = torch.arange(context, device=device)[None]
    visible = key <= query
    return visible if window is None else visible & (key > query - window)
