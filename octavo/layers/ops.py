"""The torch meaning of what most ops are made of: linears, norms, activations, rotary positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from octavo.layers.params import Params
from octavo.models.spec import LinearSpec, NormSpec

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


class Linear:
    """[..., in] -> [..., out]"""

    def __init__(self, spec: LinearSpec, params: Params) -> None:
        self.weight = params.get(spec.weight)
        self.bias = params.get(spec.bias) if spec.bias else None
        self.scale = spec.scale

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.weight, self.bias)
        return y if self.scale == 1.0 else y * self.scale


class Norm:
    """RMSNorm (Zhang and Sennrich, 2019) or LayerNorm (Ba et al., 2016) over the last axis."""

    def __init__(self, spec: NormSpec, params: Params) -> None:
        self.spec = spec
        self.weight = params.get(spec.weight) if spec.weight else None
        self.bias = params.get(spec.bias) if spec.bias else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        spec = self.spec
        wide = x.float().view(*x.shape[:-1], spec.groups, x.shape[-1] // spec.groups)
        if spec.kind == "layer":
            wide = wide - wide.mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + spec.eps)
        if self.weight is not None:
            wide = wide * self._each(self.weight.float() + spec.offset, wide)
        if self.bias is not None:
            wide = wide + self._each(self.bias.float(), wide)
        return wide.flatten(-2).to(x.dtype)

    def _each(self, vector: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        return vector if len(vector) == wide.shape[-1] else vector.view(*wide.shape[-2:])


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding (Su et al., 2021), half-split pairing.

    x: [T, heads, head_dim]; cos, sin: [T, 1, rotary_dim / 2]. Elements past rotary_dim pass.
    """
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)
