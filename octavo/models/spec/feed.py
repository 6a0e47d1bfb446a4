"""What is done to each token alone: an MLP, or experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.models.spec.params import LinearSpec, ParamSpec

Activation = Literal["silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2"]


@dataclass(frozen=True)
class MlpSpec:
    """down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.

    The sigmoid of `gate_all`, one number a token, multiplies what comes out.
    """

    gate: LinearSpec | None
    up: LinearSpec
    down: LinearSpec
    activation: Activation = "silu"
    gate_all: LinearSpec | None = None


@dataclass(frozen=True)
class RouterSpec:
    """Which experts a token goes to, and with which weights.

    Scores are the softmax of all logits, of the chosen ones, or each logit's sigmoid. `bias` is
    added to choose, never to weigh. Of `groups` of experts the best `top_groups` stay, by their
    largest score, or the sum of their two largest. Ties go to the lower expert.
    """

    linear: LinearSpec  # [num_experts]
    top_k: int
    scoring: Literal["softmax", "softmax_of_top", "sigmoid"]
    normalise: bool  # chosen weights add up to `scale`
    eps: float = 1e-20  # added to the sum by which they are divided
    scale: float = 1.0
    bias: ParamSpec | None = None
    groups: int = 1
    top_groups: int = 1
    group_score: Literal["max", "top2"] = "max"


@dataclass(frozen=True)
class ExpertsSpec:
    """A mixture of experts: the weighted sum of a few MLPs of many.

    An expert is down(activation(gate(x)) * (up(x) + shift)), or down(activation(up(x))) without
    gates; before, the gate is made at most `limit`, and |up| too, unless it is 0. With
    `weigh_input`, it is the input of an expert that is weighted, not its output.
    """

    router: RouterSpec
    gates: tuple[LinearSpec, ...]
    ups: tuple[LinearSpec, ...]
    downs: tuple[LinearSpec, ...]
    activation: Activation = "silu"
    limit: float = 0.0
    shift: float = 0.0
    weigh_input: bool = False
