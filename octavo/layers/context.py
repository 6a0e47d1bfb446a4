"""What every layer of one step shares: positions, rotary tables, and how to attend."""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.models.spec import RopeSpec

# (layer, q [T, heads, dim], k [T, kv heads, dim], v [T, kv heads, v dim]) -> [T, heads, v dim]
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class StepContext:
    """Made once a step, given to every layer.

    Args:
        positions: [T] int64, each token's index in its own sequence.
        attend: writes K and V of this step to the cache, then attends over it.
    """

    def __init__(self, positions: torch.Tensor, attend: Attend) -> None:
        self.positions = positions
        self.attend = attend
        self._tables: dict[RopeSpec, tuple[torch.Tensor, torch.Tensor]] = {}

    def rope(self, spec: RopeSpec, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin, each [T, 1, rotary_dim / 2], computed in float32 once a step."""
        if spec not in self._tables:
            inv_freq = torch.tensor(spec.inv_freq, dtype=torch.float32)
            angles = self.positions[:, None].float() * inv_freq.to(self.positions.device)
            cos, sin = angles.cos(), angles.sin()
            factor = spec.attention_factor
            self._tables[spec] = (
                (cos * factor).to(dtype)[:, None],
                (sin * factor).to(dtype)[:, None],
            )
        return self._tables[spec]
