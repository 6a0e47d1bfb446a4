"""A model: residual blocks of branches, and what is before and behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, TypeAlias

from octavo.base.kv import KVGroup
from octavo.models.spec.attention import AttendSpec, AttentionSpec, LatentAttentionSpec
from octavo.models.spec.feed import ExpertsSpec, MlpSpec
from octavo.models.spec.params import LinearSpec, NormSpec, ParamSpec
from octavo.models.spec.states import StateSpec

OpSpec: TypeAlias = AttentionSpec | LatentAttentionSpec | MlpSpec | ExpertsSpec | StateSpec


@dataclass(frozen=True)
class BranchSpec:
    """post_norm(op(norm(x)))"""

    norm: NormSpec | None
    op: OpSpec
    post_norm: NormSpec | None = None


@dataclass(frozen=True)
class LayerSpec:
    """Residual blocks, one after another; the branches of one read the same x."""

    blocks: tuple[tuple[BranchSpec, ...], ...]

    @property
    def ops(self) -> tuple[OpSpec, ...]:
        return tuple(branch.op for block in self.blocks for branch in block)


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
    embedding_scale: float = 1.0
    logit_cap: float | None = None  # logits become cap tanh(logit / cap)
    needless: tuple[str, ...] = ()  # patterns of tensors that files may have and that are not read

    @property
    def tied(self) -> bool:
        return self.head.weight.name == self.embedding.name

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(param.shape) for param in self.params())

    @cached_property
    def attends(self) -> dict[int, AttendSpec]:
        """By layer, of those that attend."""
        kinds = (AttentionSpec, LatentAttentionSpec)
        return {
            n: op.attend
            for n, layer in enumerate(self.layers)
            for op in layer.ops
            if isinstance(op, kinds)
        }

    @cached_property
    def states(self) -> dict[int, StateSpec]:
        """By layer, of those that keep a state."""
        return {
            n: op
            for n, layer in enumerate(self.layers)
            for op in layer.ops
            if isinstance(op, StateSpec)
        }

    @cached_property
    def linears(self) -> tuple[LinearSpec, ...]:
        """Every linear once, in order of use."""
        return tuple({node.weight.name: node for node in walk(self, LinearSpec)}.values())

    @cached_property
    def matrices(self) -> frozenset[str]:
        """Names of the parameters that are multiplied with, or are the embedding; the others are
        vectors and the like, always kept in float32."""
        return frozenset({linear.weight.name for linear in self.linears} | {self.embedding.name})

    @cached_property
    def _params(self) -> tuple[ParamSpec, ...]:
        return tuple({param.name: param for param in walk(self, ParamSpec)}.values())

    @cached_property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that the checkpoint must have."""
        return {name: shape for p in self.params() for name, shape in p.tensors.items()}

    def params(self) -> tuple[ParamSpec, ...]:
        """Every parameter once, in order of use."""
        return self._params


def walk(node: Any, kind: type[Any]) -> Iterator[Any]:
    """Every spec of a kind in the tree, in order."""
    if isinstance(node, kind):
        yield node
    elif isinstance(node, tuple):
        for child in node:
            yield from walk(child, kind)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from walk(getattr(node, field.name), kind)
