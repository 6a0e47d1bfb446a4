"""Attention over paged KV in plain torch: what every faster backend must equal.

The blocks that some token of a row sees are gathered into one contiguous run, and cut to exactly
the tokens seen: what lies elsewhere (slots never written, blocks that slid out of a window and
are somebody else's now) is never read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from octavo.attention.batch import AttentionBatch
from octavo.attention.pages import KVPages, kv_pages
from octavo.base.kv import KVLayout
from octavo.models.memory import kv_head_bytes
from octavo.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tokens of one row see, all together."""

    blocks: torch.Tensor  # int64: those that hold it
    tokens: slice  # of the blocks' tokens
    mask: torch.Tensor | None  # [row's tokens, tokens seen] bool; None: each sees all of it


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One row of the step, for one KV group."""

    tokens: slice  # of the step's tokens
    blocks: torch.Tensor  # int64: of all its context
    context: int  # tokens up to its last one
    seen: dict[int | None, Seen]  # by window


@dataclass(frozen=True, slots=True)
class GroupPlan:
    blocks: torch.Tensor  # [T] int64: where each token's K and V go
    offsets: torch.Tensor  # [T] int64
    rows: list[RowPlan]


class ReferenceAttention:
    """A pool is one tensor of pages, each as the memory plan counts it:

        page  | K of layer a | V of a | K of layer b | V of b | ...   of the page's group

    K: [block_size, num_kv_heads, head_dim] a layer, V likewise, as `pages` keeps them. Groups that
    share a pool never share a block, so each reads a page in its own way.
    """

    def __init__(
        self, spec: ModelSpec, layout: KVLayout, kv_dtype: str, device: torch.device
    ) -> None:
        self._device = device
        self._specs = [layer.attention for layer in spec.layers]
        self._block_size = layout.block_size
        self._group_of = {n: g for g, group in enumerate(layout.groups) for n in group.layers}
        self.pools = [
            torch.empty((pool.num_blocks, pool.page_bytes), dtype=torch.uint8, device=device)
            for pool in layout.pools
        ]
        self._caches: dict[int, tuple[KVPages, KVPages]] = {}
        for g, group in enumerate(layout.groups):
            self._cut(self.pools[layout.pool_of(g)], group.layers, kv_dtype)

    def _cut(self, pages: torch.Tensor, layers: Iterable[int], kv_dtype: str) -> None:
        """K and V of each layer, as views of pages."""
        start = 0
        for n in layers:
            spec, parts = self._specs[n], []
            for dim in (spec.head_dim, spec.v_head_dim):
                shape = (self._block_size, spec.num_kv_heads, kv_head_bytes(kv_dtype, dim))
                part = pages[:, start : start + math.prod(shape)]
                parts.append(kv_pages(kv_dtype, part.view(len(pages), *shape)))
                start += math.prod(shape)
            self._caches[n] = (parts[0], parts[1])
        assert start <= pages.shape[1], f"a page of {pages.shape[1]} bytes, {start} used"

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
        keys.write(group.blocks, group.offsets, k)
        values.write(group.blocks, group.offsets, v)
        out = q.new_empty((*q.shape[:2], spec.v_head_dim))
        for row in group.rows:
            seen = self._seen(row, spec.window)
            out[row.tokens] = F.scaled_dot_product_attention(
                q[row.tokens].transpose(0, 1)[None],
                _gather(keys, seen, q.dtype),
                _gather(values, seen, q.dtype),
                attn_mask=seen.mask,
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

    def _seen(self, row: RowPlan, window: int | None) -> Seen:
        """Made for the first layer that asks."""
        if window not in row.seen:
            length = row.tokens.stop - row.tokens.start
            first = _oldest(row.context - length, window)
            block = first // self._block_size
            skipped = block * self._block_size
            row.seen[window] = Seen(
                row.blocks[block:],
                slice(first - skipped, row.context - skipped),
                _visible(length, row.context, window, self._device),
            )
        return row.seen[window]


def _gather(pages: KVPages, seen: Seen, dtype: torch.dtype) -> torch.Tensor:
    """[1, num_kv_heads, tokens, dim]"""
    return pages.read(seen.blocks, dtype).flatten(0, 1)[seen.tokens].transpose(0, 1)[None]


def _oldest(position: int, window: int | None) -> int:
    """The first position that a token sees."""
    return 0 if window is None else max(0, position + 1 - window)


def _visible(
    length: int, context: int, window: int | None, device: torch.device
) -> torch.Tensor | None:
    """Which of the tokens seen by some of the last `length` of `context` each of these sees; None:
    all, as one token does."""
    if length == 1:
        return None
    query = torch.arange(context - length, context, device=device)[:, None]
    key = torch.arange(_oldest(context - length, window), context, device=device)[None]
    visible = key <= query
    return visible if window is None else visible & (key > query - window)
