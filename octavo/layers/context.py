"""What every layer of one step shares: positions, rotary tables, how to attend, states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch

from octavo.models.spec import RopeSpec

# Layer -> each row's tokens of the step, and its state, to be changed in place.
States = Callable[[int], Iterable[tuple[slice, torch.Tensor]]]


class Attend(Protocol):
    def __call__(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,
        *,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write K and V of this step to the cache, then attend over it.

        q: [T, heads, dim]; k: [T, kv heads, dim]; v: [T, kv heads, v dim]; gives
        [T, heads, v dim].
        """


class StepContext:
    """Made once a step, given to every layer.

    Args:
        positions: [T] int64, each token's index in its own sequence.
        attend: attention over the cache.
        states: recurrent states; of models that keep any.
    """

    def __init__(
        self, positions: torch.Tensor, attend: Attend, states: States = lambda layer: ()
    ) -> None:
        self.positions = positions
        self.attend = attend
        self.states = states
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
