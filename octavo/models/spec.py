"""A model as data: a tree of frozen specs that says shapes, parameter names and constants.

Three readers: `capacity` adds up its bytes, `layers` builds torch modules from it, and a native
program can be emitted from it. Names are those of a checkpoint in Hugging Face layout; readers of
other formats translate. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from octavo.base.kv import KVGroup


@dataclass(frozen=True)
class ParamSpec:
    """One tensor of the checkpoint."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LinearSpec:
    """y = x W^T + b. weight: [out_features, in_features]."""

    weight: ParamSpec
    bias: ParamSpec | None = None


@dataclass(frozen=True)
class NormSpec:
    """RMSNorm over the last axis, computed in float32, then scaled by weight: [size]."""

    weight: ParamSpec
    eps: float


@dataclass(frozen=True)
class RopeSpec:
    """Rotary positions, half-split ("neox") pairing: element i turns with i + rotary_dim / 2.

    `inv_freq`: [rotary_dim / 2] float64 values, scaling included; `attention_factor` multiplies
    cos and sin (YaRN).
    """

    rotary_dim: int
    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0


@dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention. q: [num_heads * head_dim], k: [num_kv_heads * head_dim],
    v: [num_kv_heads * v_head_dim]."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    scale: float
    q: LinearSpec
    k: LinearSpec
    v: LinearSpec
    o: LinearSpec
    rope: RopeSpec | None
    q_norm: NormSpec | None = None  # over each head
    k_norm: NormSpec | None = None
    window: int | None = None  # a token sees itself and the window - 1 before it


@dataclass(frozen=True)
class MlpSpec:
    """down(activation(gate(x)) * up(x))."""

    gate: LinearSpec
    up: LinearSpec
    down: LinearSpec
    activation: Literal["silu", "gelu", "gelu_tanh"] = "silu"


@dataclass(frozen=True)
class LayerSpec:
    """Pre-norm residual block: x += attention(norm(x)); x += mlp(norm(x))."""

    input_norm: NormSpec
    attention: AttentionSpec
    post_norm: NormSpec
    mlp: MlpSpec


@dataclass(frozen=True)
class ModelSpec:
    """A decoder: embedding, layers, norm, head. A tied head has the embedding's parameter."""

    family: str
    vocab_size: int
    hidden_size: int
    max_model_len: int  # positions the model was made for
    embedding: ParamSpec  # [vocab_size, hidden_size]
    layers: tuple[LayerSpec, ...]
    norm: NormSpec
    head: LinearSpec
    kv_groups: tuple[KVGroup, ...]
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    @property
    def tied(self) -> bool:
        return self.head.weight.name == self.embedding.name

    def params(self) -> tuple[ParamSpec, ...]:
        """Every tensor of the checkpoint once, in order of use."""
        return tuple({p.name: p for p in _walk(self)}.values())


def _walk(node: Any) -> Iterator[ParamSpec]:
    if isinstance(node, ParamSpec):
        yield node
    elif isinstance(node, tuple):
        for child in node:
            yield from _walk(child)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from _walk(getattr(node, field.name))
