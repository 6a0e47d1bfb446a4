"""Attention over paged KV in plain torch: what every faster backend must equal.

The blocks that some token of a row sees are gathered into one contiguous run, and cut to exactly
the tokens seen: what lies elsewhere (slots never written, blocks that slid out of a window and
are somebody else's now) is never read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from octavo.attention.batch import AttentionBatch
from octavo.attention.pages import KVPages, kv_pages
from octavo.base.kv import KVLayout
from octavo.models.memory import kv_head_bytes
from octavo.models.spec import AttendSpec


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
    seen: dict[tuple[int | None, int | None], Seen]  # by window and chunk


@dataclass(frozen=True, slots=True)
class GroupPlan:
    blocks: torch.Tensor  # [T] int64: where each token's K and V go
    offsets: torch.Tensor  # [T] int64
    rows: list[RowPlan]


class ReferenceAttention:
    """A pool is one tensor of pages, each as the memory plan counts it:

        page  | K of layer a | V of a | K of layer b | V of b | ...   of the page's group

    K: [block_size, num_kv_heads, head_dim] a layer, V likewise where there are any, as `pages`
    keeps them. Groups that share a pool never share a block, so each reads a page in its own way.
    """

    def __init__(
        self,
        attends: Mapping[int, AttendSpec],
        layout: KVLayout,
        kv_dtype: str,
        device: torch.device,
    ) -> None:
        """`attends`: by layer, of those in groups that keep keys and values."""
        self._device = device
        self._specs = attends
        self._block_size = layout.block_size
        self._group_of: dict[int, int] = {}
        self.pools = [
            torch.empty((pool.num_blocks, pool.page_bytes), dtype=torch.uint8, device=device)
            for pool in layout.pools
        ]
        self._caches: dict[int, list[KVPages]] = {}
        for g, group in enumerate(layout.groups):
            if not group.is_state:
                self._group_of |= dict.fromkeys(group.layers, g)
                self._cut(self.pools[layout.pool_of(g)], group.layers, kv_dtype)

    def _cut(self, pages: torch.Tensor, layers: Iterable[int], kv_dtype: str) -> None:
        """K and V of each layer, as views of pages."""
        start = 0
        for n in layers:
            spec = self._specs[n]
            self._caches[n] = []
            for dim in spec.kept_dims:
                shape = (self._block_size, spec.num_kv_heads, kv_head_bytes(kv_dtype, dim))
                part = pages[:, start : start + math.prod(shape)]
                self._caches[n].append(kv_pages(kv_dtype, part.view(len(pages), *shape)))
                start += math.prod(shape)
        assert start <= pages.shape[1], f"a page of {pages.shape[1]} bytes, {start} used"

    def plan(self, batch: AttentionBatch) -> dict[int, GroupPlan]:
        return {g: self._plan_group(batch, g) for g in set(self._group_of.values())}

    def run(
        self,
        plan: dict[int, GroupPlan],
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,
        how: AttendSpec | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        group, how = plan[self._group_of[layer]], how or self._specs[layer]
        caches = self._caches[layer]
        for pages, numbers in zip(caches, (k, v), strict=False):
            assert numbers is not None
            pages.write(group.blocks, group.offsets, numbers)
        out = q.new_empty((*q.shape[:2], how.v_head_dim))
        for row in group.rows:
            seen = self._seen(row, how)
            keys = _gather(caches[0], seen, q.dtype)
            if how.value_column is None:
                values = _gather(caches[1], seen, q.dtype)
            else:
                values = keys[..., how.value_column :][..., : how.v_head_dim]
            out[row.tokens] = attend(q[row.tokens], keys, values, seen.mask, how, sinks)
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

    def _seen(self, row: RowPlan, how: AttendSpec) -> Seen:
        """Made for the first layer that asks."""
        at = how.window, how.chunk
        if at not in row.seen:
            start = row.context - (row.tokens.stop - row.tokens.start)
            first = how.oldest(start)
            block = first // self._block_size
            skipped = block * self._block_size
            row.seen[at] = Seen(
                row.blocks[block:],
                slice(first - skipped, row.context - skipped),
                visible(start, row.context, how, self._device),
            )
        return row.seen[at]


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    how: AttendSpec,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """One row. q: [tokens, num_heads, head_dim]; k, v: [num_kv_heads, tokens seen, dim]; mask:
    [tokens, tokens seen] bool; sinks: [num_heads]. Gives [tokens, num_heads, v_head_dim]."""
    q = q.transpose(0, 1)
    if how.soft_cap is None and sinks is None:
        mixed = F.scaled_dot_product_attention(
            q[None],
            k[None],
            v[None],
            attn_mask=mask,
            scale=how.scale,
            enable_gqa=how.num_heads != how.num_kv_heads,
        )[0]
        return mixed.transpose(0, 1)
    together = how.num_heads // how.num_kv_heads
    k, v = (x.repeat_interleave(together, 0).float() for x in (k, v))
    scores = q.float() @ k.mT * how.scale
    if how.soft_cap is not None:
        scores = how.soft_cap * torch.tanh(scores / how.soft_cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        further = sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat((scores, further), -1)
    weights = scores.softmax(-1)[..., : k.shape[1]]
    return (weights @ v).transpose(0, 1).to(q.dtype)


def _gather(pages: KVPages, seen: Seen, dtype: torch.dtype) -> torch.Tensor:
    """[num_kv_heads, tokens, dim]"""
    return pages.read(seen.blocks, dtype).flatten(0, 1)[seen.tokens].transpose(0, 1)


def visible(start: int, context: int, how: AttendSpec, device: torch.device) -> torch.Tensor | None:
    """Which of the tokens seen by some of those from `start` up to `context` each of these sees;
    None: all, as one token does."""
    if context - start == 1:
        return None
    query = torch.arange(start, context, device=device)[:, None]
    key = torch.arange(how.oldest(start), context, device=device)[None]
    visible = key <= query
    if how.chunk is not None:
        return visible & (key >= query // how.chunk * how.chunk)
    return visible if how.window is None else visible & (key > query - how.window)
