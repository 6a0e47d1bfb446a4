"""Parameters, and the linears and norms made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Part:
    """Where a parameter lies inside a tensor of the checkpoint: a matrix, or several.

    Of entry `index` along the first axis, if there is one, rows `start` to `start + take` are
    taken, and again `every` rows later; the matrix is `turned` around before that, or after. Then,
    where heads of `halved[0]` rows have `halved[2]` rotary rows from `halved[1]` on, neighbours of
    which turn together, these are put in halves: 0 2 4 ... 1 3 5 ...
    """

    tensor: str
    shape: tuple[int, ...]  # of the tensor
    index: int | None = None
    turned: Literal["before", "after"] | None = None
    start: int = 0
    take: int | None = None
    every: int | None = None
    halved: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class ParamSpec:
    """A parameter under a name of its own: a tensor of the checkpoint, part of one, or several
    equal ones `joined` along their first axis."""

    name: str
    shape: tuple[int, ...]
    part: Part | None = None
    joined: tuple[str, ...] = ()

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of what the checkpoint must have."""
        if self.part is not None:
            return {self.part.tensor: self.part.shape}
        if self.joined:
            each = (self.shape[0] // len(self.joined), *self.shape[1:])
            return dict.fromkeys(self.joined, each)
        return {self.name: self.shape}


@dataclass(frozen=True)
class LinearSpec:
    """y = scale (x W^T + b). weight: [out_features, in_features]."""

    weight: ParamSpec
    bias: ParamSpec | None = None
    scale: float = 1.0

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True)
class NormSpec:
    """RMSNorm, or LayerNorm, in float32; then times (offset + weight), and plus bias.

    The last axis is cut into `groups`, each normalised on its own; weight and bias cover all of
    them, or are those of each.
    """

    weight: ParamSpec | None
    eps: float
    bias: ParamSpec | None = None
    kind: Literal["rms", "layer"] = "rms"
    offset: float = 0.0
    groups: int = 1
