"""What an attention backend is given and owes: `plan` once a step, `run` once a layer."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from octavo.attention.batch import AttentionBatch
from octavo.models.spec import AttendSpec


class AttentionBackend(Protocol):
    """Owns the KV cache of all layers in a layout that is its own secret."""

    pools: list[torch.Tensor]  # uint8 [blocks, bytes]

    def plan(self, batch: AttentionBatch) -> Any:
        """Prepare what all layers share; the result is given back to `run`."""
        ...

    def run(
        self,
        plan: Any,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,
        how: AttendSpec | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write this step's K and V, then attend: a token sees the tokens of its own sequence up
        to itself, as far as the layer's spec, or `how` in its place, lets it.

        Args:
            q: [T, num_heads, head_dim]; k: [T, num_kv_heads, head_dim];
            v: [T, num_kv_heads, v_head_dim], or None where values are columns of the keys.
            how: as the layer's own in all shapes.
            sinks: [num_heads], a further logit in each softmax.

        Returns:
            [T, num_heads, v_head_dim]
        """
        ...
