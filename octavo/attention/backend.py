"""What an attention backend is given and owes: `plan` once a step, `run` once a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Where the rows of one step lie. R rows, T tokens; arrays are numpy, one entry per KV group
    in `tables` and `slots`."""

    row_starts: np.ndarray  # [R + 1] int32: tokens of row r are row_starts[r]:row_starts[r + 1]
    context_lens: np.ndarray  # [R] int32: tokens that row r's last token sees, itself included
    tables: list[np.ndarray]  # [R, most blocks] int32, padded with block 0
    slots: list[np.ndarray]  # [T] int64: where each token's K and V go


class AttentionBackend(Protocol):
    """Owns the KV cache of all layers in a layout that is its own secret."""

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
