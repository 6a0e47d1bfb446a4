"""What an attention backend is given and owes: `plan` once a step, `run` once a layer."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from octavo.attention.batch import AttentionBatch


class AttentionBackend(Protocol):
    """Owns the KV cache of all layers in a layout that is its own secret."""

    pools: list[torch.Tensor]  # uint8 [blocks, bytes]

    def plan(self, batch: AttentionBatch) -> Any:
        """Prepare what all layers share; the result is given back to `run`."""
        ...

    def run(
        self, plan: Any, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """Write this step's K and V, then attend: a token sees the tokens of its own sequence up
        to itself, within the layer's window.

        Args:
            q: [T, num_heads, head_dim]; k: [T, num_kv_heads, head_dim];
            v: [T, num_kv_heads, v_head_dim].

        Returns:
            [T, num_heads, v_head_dim]
        """
        ...
