"""The torch reading of a ModelSpec. Knows shapes and one step's context; nothing of blocks, plans
or where parameters come from.

T: tokens of the step, all rows one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from octavo.layers.attention import Attention, LatentAttention
from octavo.layers.context import StepContext
from octavo.layers.feed import Experts, Mlp
from octavo.layers.ops import Linear, Norm
from octavo.layers.params import Params
from octavo.layers.states import Delta, Mamba1, Mamba2, ShortConv
from octavo.models.spec import (
    AttentionSpec,
    BranchSpec,
    DeltaSpec,
    ExpertsSpec,
    LatentAttentionSpec,
    LayerSpec,
    Mamba1Spec,
    Mamba2Spec,
    MlpSpec,
    ModelSpec,
    ShortConvSpec,
)

# (spec, index of the layer, params) -> op: [T, hidden] -> [T, hidden]
OPS: dict[type, Callable[[Any, int, Params], Callable[..., torch.Tensor]]] = {
    AttentionSpec: Attention,
    LatentAttentionSpec: LatentAttention,
    MlpSpec: Mlp,
    ExpertsSpec: Experts,
    ShortConvSpec: ShortConv,
    Mamba1Spec: Mamba1,
    Mamba2Spec: Mamba2,
    DeltaSpec: Delta,
}


class Branch:
    """post_norm(op(norm(x)))"""

    def __init__(self, spec: BranchSpec, index: int, params: Params) -> None:
        self.norm = Norm(spec.norm, params) if spec.norm else None
        self.op = OPS[type(spec.op)](spec.op, index, params)
        self.post_norm = Norm(spec.post_norm, params) if spec.post_norm else None

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        y = self.op(self.norm(x) if self.norm else x, ctx)
        return self.post_norm(y) if self.post_norm else y


class Layer:
    """Residual blocks, one after another."""

    def __init__(self, spec: LayerSpec, index: int, params: Params) -> None:
        self.blocks = [[Branch(b, index, params) for b in block] for block in spec.blocks]

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        for block in self.blocks:
            x = x + sum(branch(x, ctx) for branch in block)
        return x


class Decoder:
    """Token ids [T] -> logits of chosen tokens [S, vocab], float32.

    Of a step, `told` are the outputs of the layers that `features` names, side by side:
    [T, len(features) * hidden].
    """

    told: torch.Tensor

    def __init__(self, spec: ModelSpec, params: Params, features: Sequence[int] = ()) -> None:
        self.spec, self.features = spec, features
        self.embedding = params.get(spec.embedding)
        self.layers = [Layer(layer, i, params) for i, layer in enumerate(spec.layers)]
        self.norm = Norm(spec.norm, params)
        self.head = Linear(spec.head, params)

    def __call__(
        self, token_ids: torch.Tensor, ctx: StepContext, chosen: torch.Tensor
    ) -> torch.Tensor:
        x = F.embedding(token_ids, self.embedding)
        if self.spec.embedding_scale != 1.0:
            x = x * self.spec.embedding_scale
        outputs = {}
        for n, layer in enumerate(self.layers):
            x = layer(x, ctx)
            if n in self.features:
                outputs[n] = x
        if self.features:
            self.told = torch.cat([outputs[n] for n in self.features], -1)
        logits = self.head(self.norm(x[chosen])).float()
        cap = self.spec.logit_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)
