"""The torch meaning of every spec in `models.spec`. Knows shapes and one step's context; nothing
of blocks, plans or where parameters come from.

T: tokens of the step, all rows one after another.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from octavo.layers.context import StepContext
from octavo.layers.params import Params
from octavo.models.spec import (
    AttentionSpec,
    LayerSpec,
    LinearSpec,
    MlpSpec,
    ModelSpec,
    NormSpec,
)

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class Linear:
    """[..., in] -> [..., out]"""

    def __init__(self, spec: LinearSpec, params: Params) -> None:
        self.weight = params.get(spec.weight)
        self.bias = params.get(spec.bias) if spec.bias else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


class RMSNorm:
    """Root mean square norm (Zhang and Sennrich, 2019) over the last axis, in float32."""

    def __init__(self, spec: NormSpec, params: Params) -> None:
        self.weight = params.get(spec.weight)
        self.eps = spec.eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding (Su et al., 2021), half-split pairing.

    x: [T, heads, head_dim]; cos, sin: [T, 1, rotary_dim / 2]. Elements past rotary_dim pass.
    """
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)


class Attention:
    """[T, hidden] -> [T, hidden], through the step's attention over paged KV."""

    def __init__(self, spec: AttentionSpec, index: int, params: Params) -> None:
        self.spec = spec
        self.index = index
        self.q, self.k, self.v = (Linear(s, params) for s in (spec.q, spec.k, spec.v))
        self.o = Linear(spec.o, params)
        self.q_norm = RMSNorm(spec.q_norm, params) if spec.q_norm else None
        self.k_norm = RMSNorm(spec.k_norm, params) if spec.k_norm else None

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        spec = self.spec
        q = self.q(x).view(len(x), spec.num_heads, spec.head_dim)
        k = self.k(x).view(len(x), spec.num_kv_heads, spec.head_dim)
        v = self.v(x).view(len(x), spec.num_kv_heads, spec.v_head_dim)
        q = self.q_norm(q) if self.q_norm else q
        k = self.k_norm(k) if self.k_norm else k
        if spec.rope is not None:
            cos, sin = ctx.rope(spec.rope, x.dtype)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return self.o(ctx.attend(self.index, q, k, v).flatten(-2))


class Mlp:
    def __init__(self, spec: MlpSpec, params: Params) -> None:
        self.gate, self.up, self.down = (Linear(s, params) for s in (spec.gate, spec.up, spec.down))
        self.activation = ACTIVATIONS[spec.activation]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Layer:
    """One pre-norm residual block."""

    def __init__(self, spec: LayerSpec, index: int, params: Params) -> None:
        self.input_norm = RMSNorm(spec.input_norm, params)
        self.attention = Attention(spec.attention, index, params)
        self.post_norm = RMSNorm(spec.post_norm, params)
        self.mlp = Mlp(spec.mlp, params)

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        x = x + self.attention(self.input_norm(x), ctx)
        return x + self.mlp(self.post_norm(x))


class Decoder:
    """Token ids [T] -> logits of chosen tokens [S, vocab], float32."""

    def __init__(self, spec: ModelSpec, params: Params) -> None:
        self.embedding = params.get(spec.embedding)
        self.layers = [Layer(layer, i, params) for i, layer in enumerate(spec.layers)]
        self.norm = RMSNorm(spec.norm, params)
        self.head = Linear(spec.head, params)

    def __call__(
        self, token_ids: torch.Tensor, ctx: StepContext, chosen: torch.Tensor
    ) -> torch.Tensor:
        x = F.embedding(token_ids, self.embedding)
        for layer in self.layers:
            x = layer(x, ctx)
        return self.head(self.norm(x[chosen])).float()
