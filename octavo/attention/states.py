"""Recurrent states in the pages of their group: read from one block of it, left in another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from octavo.attention.batch import AttentionBatch
from octavo.base.kv import KVLayout


class StatePages:
    """A page holds, layer after layer, the float32 numbers that its group's layers keep.

    A row's table says two blocks: that of its state before the step (the null block: none yet, all
    zeros), and the one where the state after its last token goes.
    """

    def __init__(
        self, kept: Mapping[int, int], layout: KVLayout, pools: list[torch.Tensor]
    ) -> None:
        """`kept`: numbers by layer."""
        self._parts: dict[int, torch.Tensor] = {}
        self._group_of: dict[int, int] = {}
        for g, group in enumerate(layout.groups):
            if not group.is_state:
                continue
            pages, start = pools[layout.pool_of(g)].view(torch.float32), 0
            for n in group.layers:
                self._parts[n] = pages[:, start : start + kept[n]]
                self._group_of[n] = g
                start += kept[n]

    def rows(self, batch: AttentionBatch, layer: int) -> Iterator[tuple[slice, torch.Tensor]]:
        """Of each row, its tokens in the step, and its state [kept], which is to be changed in
        place from that before the row to that after it."""
        part, starts = self._parts[layer], batch.row_starts.tolist()
        for r, (source, target) in enumerate(batch.tables[self._group_of[layer]].tolist()):
            state = part[target]
            if source:
                state.copy_(part[source])
            else:
                state.zero_()
            yield slice(starts[r], starts[r + 1]), state
