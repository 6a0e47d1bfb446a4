"""What keeps a state: convolutions, state spaces, delta rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from octavo.models.spec.params import LinearSpec, NormSpec, ParamSpec


@dataclass(frozen=True)
class ConvolutionSpec:
    """Causal depthwise convolution: weight [channels, 1, length], then `activation`. Kept are the
    last length - 1 inputs."""

    weight: ParamSpec
    bias: ParamSpec | None
    activation: Literal["none", "silu"] = "silu"

    @property
    def channels(self) -> int:
        return self.weight.shape[0]

    @property
    def kept(self) -> int:
        """Numbers."""
        return self.channels * (self.weight.shape[-1] - 1)


@dataclass(frozen=True)
class ShortConvSpec:
    """The mixer of LFM2: out(c * convolution(b * x)); b, c, x: [hidden]."""

    b: LinearSpec
    c: LinearSpec
    x: LinearSpec
    convolution: ConvolutionSpec
    out: LinearSpec

    @property
    def kept(self) -> int:
        return self.convolution.kept


@dataclass(frozen=True)
class Mamba1Spec:
    """Selective scan (Mamba, arXiv 2312.00752): a state [inner, state_size].

    B, C and the steps come of the convolved x; the norms over each are Jamba's.
    """

    x: LinearSpec  # [inner]
    z: LinearSpec  # [inner]: the gate
    convolution: ConvolutionSpec
    dt_down: LinearSpec
    b: LinearSpec  # [state_size]
    c: LinearSpec
    dt: LinearSpec  # [inner]
    a_log: ParamSpec  # [inner, state_size]; a = -exp(a_log)
    d: ParamSpec  # [inner]
    out: LinearSpec
    dt_norm: NormSpec | None = None
    b_norm: NormSpec | None = None
    c_norm: NormSpec | None = None

    @property
    def kept(self) -> int:
        inner, state_size = self.a_log.shape
        return self.convolution.kept + inner * state_size


@dataclass(frozen=True)
class Mamba2Spec:
    """State-space duality (Mamba-2, arXiv 2405.21060): a state [heads, head_dim, state_size].

    `mixed`: x [heads * head_dim], B and C [groups * state_size] each, all convolved.
    """

    heads: int
    head_dim: int
    state_size: int
    groups: int
    z: LinearSpec  # [heads * head_dim]: the gate
    mixed: tuple[LinearSpec, ...]  # of x, B, C side by side
    dt: LinearSpec  # [heads]
    convolution: ConvolutionSpec
    a_log: ParamSpec  # [heads]
    d: ParamSpec
    dt_bias: ParamSpec
    dt_limits: tuple[float, float]
    norm: NormSpec | None  # of y
    norm_before_gate: bool  # norm(y) * silu(z), else norm(y * silu(z))
    out: LinearSpec

    @property
    def kept(self) -> int:
        return self.convolution.kept + self.heads * self.head_dim * self.state_size


@dataclass(frozen=True)
class DeltaSpec:
    """Gated DeltaNet (arXiv 2412.06464): a state [value_heads, key_dim, value_dim]."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    mixed: tuple[LinearSpec, ...]  # q, k, v side by side, all convolved
    convolution: ConvolutionSpec
    decay: LinearSpec  # [value_heads]
    beta: LinearSpec  # [value_heads]
    a_log: ParamSpec  # [value_heads]
    dt_bias: ParamSpec
    z: LinearSpec  # [value_heads * value_dim]
    norm: NormSpec  # over each head, then times silu(z)
    out: LinearSpec

    @property
    def kept(self) -> int:
        return self.convolution.kept + self.value_heads * self.key_dim * self.value_dim


StateSpec: TypeAlias = ShortConvSpec | Mamba1Spec | Mamba2Spec | DeltaSpec
