"""What is done to each token alone, as torch modules: MLPs and mixtures of them."""

from __future__ import annotations

import torch

from octavo.layers.context import StepContext
from octavo.layers.ops import ACTIVATIONS, Linear
from octavo.layers.params import Params
from octavo.models.spec import ExpertsSpec, MlpSpec, RouterSpec


class Mlp:
    def __init__(self, spec: MlpSpec, index: int, params: Params) -> None:
        self.gate = Linear(spec.gate, params) if spec.gate else None
        self.up, self.down = Linear(spec.up, params), Linear(spec.down, params)
        self.gate_all = Linear(spec.gate_all, params) if spec.gate_all else None
        self.activation = ACTIVATIONS[spec.activation]

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        if self.gate is None:
            inner = self.activation(self.up(x))
        else:
            inner = self.activation(self.gate(x)) * self.up(x)
        y = self.down(inner)
        return y if self.gate_all is None else y * torch.sigmoid(self.gate_all(x))


class Router:
    """[T, hidden] -> experts and weights, each [T, top_k]; computed in float32."""

    def __init__(self, spec: RouterSpec, params: Params) -> None:
        self.spec = spec
        self.linear = Linear(spec.linear, params)
        self.bias = params.get(spec.bias) if spec.bias else None

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spec, logits = self.spec, self.linear(x).float()
        if spec.scoring == "softmax":
            scores = logits.softmax(-1)
        else:
            scores = logits.sigmoid() if spec.scoring == "sigmoid" else logits
        choice = scores if self.bias is None else scores + self.bias.float()
        # A stable sort: ties go to the lower expert.
        order = self._in_best_groups(choice).argsort(dim=-1, descending=True, stable=True)
        experts = order[:, : spec.top_k]
        weights = scores.gather(-1, experts)
        if spec.scoring == "softmax_of_top":
            weights = weights.softmax(-1)
        if spec.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + spec.eps)
        return experts, weights * spec.scale

    def _in_best_groups(self, choice: torch.Tensor) -> torch.Tensor:
        spec = self.spec
        if spec.groups == spec.top_groups:
            return choice
        grouped = choice.view(len(choice), spec.groups, choice.shape[-1] // spec.groups)
        best = grouped.topk(2 if spec.group_score == "top2" else 1).values.sum(-1)
        ranks = best.argsort(dim=-1, descending=True, stable=True).argsort(-1)
        out = (ranks >= spec.top_groups)[..., None]
        return grouped.masked_fill(out, -torch.inf).flatten(-2)


class Experts:
    """The weighted sum of the MLPs that a token is routed to."""

    def __init__(self, spec: ExpertsSpec, index: int, params: Params) -> None:
        self.spec = spec
        self.activation = ACTIVATIONS[spec.activation]
        self.router = Router(spec.router, params)
        self.gates, self.ups, self.downs = (
            [Linear(linear, params) for linear in linears]
            for linears in (spec.gates, spec.ups, spec.downs)
        )

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        chosen, weights = self.router(x)
        y = torch.zeros_like(x)
        for expert in sorted(set(chosen.flatten().tolist())):
            tokens, slots = (chosen == expert).nonzero(as_tuple=True)
            weight = weights[tokens, slots][:, None].to(x.dtype)
            rows = x[tokens] * weight if self.spec.weigh_input else x[tokens]
            out = self._expert(expert, rows)
            y.index_add_(0, tokens, out if self.spec.weigh_input else out * weight)
        return y

    def _expert(self, expert: int, x: torch.Tensor) -> torch.Tensor:
        up = self.ups[expert](x)
        if not self.gates:
            return self.downs[expert](self.activation(up))
        gate, limit = self.gates[expert](x), self.spec.limit
        if limit > 0:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return self.downs[expert](self.activation(gate) * (up + self.spec.shift))
