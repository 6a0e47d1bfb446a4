"""A model as data: a tree of frozen specs that says shapes, parameters and constants.

Three readers: `models.memory` adds up its bytes, `layers` builds torch modules from it, and
`native` emits a program from it. Nothing here computes.

        layer      a few residual blocks, one after another:      x += branch(x) + branch(x) + ...
        branch     post_norm(op(norm(x))), either norm may be absent
        op         attention, latent attention, MLP, experts, or one that keeps a state
"""

from __future__ import annotations

from octavo.models.spec.attention import (
    AttendSpec,
    AttentionSpec,
    LatentAttentionSpec,
    RopeSpec,
    TemperSpec,
)
from octavo.models.spec.feed import (
    Activation,
    ExpertsSpec,
    MlpSpec,
    RouterSpec,
)
from octavo.models.spec.model import BranchSpec, LayerSpec, ModelSpec, OpSpec, walk
from octavo.models.spec.params import LinearSpec, NormSpec, ParamSpec, Part
from octavo.models.spec.states import (
    ConvolutionSpec,
    DeltaSpec,
    Mamba1Spec,
    Mamba2Spec,
    ShortConvSpec,
    StateSpec,
)

__all__ = [
    "Activation",
    "AttendSpec",
    "AttentionSpec",
    "BranchSpec",
    "ConvolutionSpec",
    "DeltaSpec",
    "ExpertsSpec",
    "LatentAttentionSpec",
    "LayerSpec",
    "LinearSpec",
    "Mamba1Spec",
    "Mamba2Spec",
    "MlpSpec",
    "ModelSpec",
    "NormSpec",
    "OpSpec",
    "ParamSpec",
    "Part",
    "RopeSpec",
    "RouterSpec",
    "ShortConvSpec",
    "StateSpec",
    "TemperSpec",
    "walk",
]
