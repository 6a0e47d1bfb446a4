"""What families of decoders differ in, as traits, and the parts that most of their layers have.

A family file says only what differs: traits, and functions of its own for parts that are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from octavo.base.errors import ModelError
from octavo.base.kv import KVGroup
from octavo.models.config import Config, flag, integer, number, value
from octavo.models.rope import rope_spec
from octavo.models.spec import (
    Activation,
    AttendSpec,
    AttentionSpec,
    BranchSpec,
    LayerSpec,
    LinearSpec,
    MlpSpec,
    NormSpec,
    OpSpec,
    ParamSpec,
    Part,
    RopeSpec,
)

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
}

_RMS = NormSpec(None, 0.0)


@dataclass(frozen=True)
class Names:
    """Of the parts of a layer; norms that are None are not there."""

    layers: str = "model.layers"
    mixer: str = "self_attn"
    output: str = "o_proj"  # of attention
    feed: str = "mlp"
    before_mixer: str | None = "input_layernorm"
    after_mixer: str | None = None
    before_feed: str | None = "post_attention_layernorm"
    after_feed: str | None = None
    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"


Ops: TypeAlias = Callable[["Build", int], tuple[OpSpec, ...]]


@dataclass(frozen=True)
class Traits:
    """How a family's layers differ from Llama's. `mixers` and `feeds` give what the branches of a
    layer's two residual blocks do; one may give nothing."""

    names: Names = Names()
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    fused_qkv: bool = False  # q, k and v are one tensor
    fused_mlp: bool = False  # gate and up are
    parallel: bool = False  # mixer and feed-forward part read the same x
    norm: NormSpec = _RMS  # how norms compute; each has a weight of its own
    eps: str = "rms_norm_eps"  # where the config says theirs, unless `norm` does
    norm_bias: bool = False
    norm_weight: bool = True
    qk_norm: Literal["head", "whole"] | None = None  # over each head, or over all
    interleaved: bool = False  # neighbours turn together
    rope: Callable[[Build, int], RopeSpec | None] | None = None  # else the same in all layers
    attention_scale: float | None = None  # else head_dim ** -0.5
    soft_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    head_scale: float = 1.0
    max_model_len: int | None = None  # else what config and rope scaling say
    mixers: Ops | None = None
    feeds: Ops | None = None
    understood: tuple[str, ...] = ()  # options that this family reads, of those refused elsewhere


def biased(config: Config, **more: Any) -> Traits:
    """Traits of a family whose `attention_bias` is a bias of q, k, v and o."""
    bias = flag(config, "attention_bias")
    return Traits(qkv_bias=bias, o_bias=bias, **more)


class Build:
    """One config, and what is made of it. Sizes are read as they are asked for."""

    def __init__(self, config: Config, traits: Traits, groups: Iterable[KVGroup]) -> None:
        self.config, self.traits, self.names = config, traits, traits.names
        self.hidden = integer(config, "hidden_size", "d_model")
        self.eps = traits.norm.eps or number(config, traits.eps, default=1e-6)
        self.activation = activation(config)
        self.groups = {n: g for g in groups if not g.is_state for n in g.layers}

    # ---- sizes ----

    @property
    def heads(self) -> int:
        return integer(self.config, "num_attention_heads")

    @property
    def kv_heads(self) -> int:
        found = integer(self.config, "num_key_value_heads", default=self.heads)
        if self.heads % found:
            raise ModelError(
                f"config: {self.heads} attention heads are no multiple of {found} KV heads"
            )
        return found

    @property
    def head_dim(self) -> int:
        return integer(self.config, "head_dim", default=self.hidden // self.heads)

    @property
    def inner(self) -> int:
        """Of the MLP."""
        return integer(self.config, "intermediate_size")

    # ---- leaves ----

    def path(self, layer: int, part: str) -> str:
        return f"{self.names.layers}.{layer}.{part}"

    def linear(
        self,
        name: str,
        rows: int,
        columns: int,
        bias: bool = False,
        scale: float = 1.0,
        halved: tuple[int, int, int] | None = None,
    ) -> LinearSpec:
        """`halved`: see Part."""
        if halved is not None:
            return self.cut(name, name, (rows, columns), 0, rows, bias, scale, halved=halved)
        weight = ParamSpec(f"{name}.weight", (rows, columns))
        return LinearSpec(weight, ParamSpec(f"{name}.bias", (rows,)) if bias else None, scale)

    def cut(
        self,
        name: str,
        tensor: str,
        shape: tuple[int, int],
        start: int,
        take: int,
        bias: bool = False,
        scale: float = 1.0,
        every: int | None = None,
        halved: tuple[int, int, int] | None = None,
    ) -> LinearSpec:
        """Some rows of the linear `tensor` of this shape, under a name of their own."""
        part = Part(f"{tensor}.weight", shape, start=start, take=take, every=every, halved=halved)
        rows = take * (shape[0] // every if every else 1)
        weight = ParamSpec(f"{name}.weight", (rows, shape[1]), part)
        offset = replace(part, tensor=f"{tensor}.bias", shape=shape[:1])
        return LinearSpec(
            weight, ParamSpec(f"{name}.bias", (rows,), offset) if bias else None, scale
        )

    def norm(self, name: str, size: int, groups: int = 1) -> NormSpec:
        traits = self.traits
        return replace(
            traits.norm,
            weight=ParamSpec(f"{name}.weight", (size,)) if traits.norm_weight else None,
            bias=ParamSpec(f"{name}.bias", (size,)) if traits.norm_bias else None,
            eps=self.eps,
            groups=groups,
        )

    # ---- parts that most families have ----

    def group(self, layer: int) -> KVGroup:
        """Of the layer's attention."""
        if layer not in self.groups:
            raise ModelError(f"config: layer {layer} must attend, its type says that it does not")
        return self.groups[layer]

    @cached_property
    def plain_rope(self) -> RopeSpec:
        """Where all layers that turn do so alike."""
        return rope_spec(self.config, self.head_dim)

    def rope(self, layer: int) -> RopeSpec | None:
        own = self.traits.rope
        return self.plain_rope if own is None else own(self, layer)

    def attend(self, layer: int) -> AttendSpec:
        """As far as the layer's KV group says."""
        group = self.group(layer)
        return AttendSpec(
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            v_head_dim=self.head_dim,
            scale=self.traits.attention_scale or self.head_dim**-0.5,
            window=group.window if group.kind == "window" else None,
            chunk=group.window if group.kind == "chunked" else None,
            soft_cap=self.traits.soft_cap,
        )

    def attention(self, layer: int) -> AttentionSpec:
        traits, rope = self.traits, self.rope(layer)
        path = self.path(layer, self.names.mixer)
        q, k, v = self.qkv(path, rope)
        return AttentionSpec(
            attend=self.attend(layer),
            q=q,
            k=k,
            v=v,
            o=self.linear(
                f"{path}.{self.names.output}",
                self.hidden,
                self.heads * self.head_dim,
                traits.o_bias,
                traits.residual_scale,
            ),
            rope=rope,
            q_norm=self._qk_norm(f"{path}.q_norm", self.heads) if traits.qk_norm else None,
            k_norm=self._qk_norm(f"{path}.k_norm", self.kv_heads) if traits.qk_norm else None,
        )

    def qkv(self, path: str, rope: RopeSpec | None) -> list[LinearSpec]:
        dim, bias = self.head_dim, self.traits.qkv_bias
        rows = [self.heads * dim, self.kv_heads * dim, self.kv_heads * dim]
        if self.traits.fused_qkv:
            whole = (sum(rows), self.hidden)
            starts = [0, rows[0], rows[0] + rows[1]]
            return [
                self.cut(f"{path}.{x}_proj", f"{path}.qkv_proj", whole, start, count, bias)
                for x, start, count in zip("qkv", starts, rows, strict=True)
            ]
        halved = (dim, 0, rope.rotary_dim) if rope and self.traits.interleaved else None
        return [
            self.linear(f"{path}.{x}_proj", count, self.hidden, bias, halved=turned)
            for x, count, turned in zip("qkv", rows, (halved, halved, None), strict=True)
        ]

    def _qk_norm(self, name: str, heads: int) -> NormSpec:
        if self.traits.qk_norm == "whole":
            return self.norm(name, heads * self.head_dim)
        return self.norm(name, self.head_dim, groups=heads)

    def mlp(self, path: str, inner: int | None = None) -> MlpSpec:
        traits, inner, bias = self.traits, inner or self.inner, self.traits.mlp_bias
        if traits.fused_mlp:
            whole = (2 * inner, self.hidden)
            gate, up = (
                self.cut(f"{path}.{x}_proj", f"{path}.gate_up_proj", whole, start, inner, bias)
                for x, start in (("gate", 0), ("up", inner))
            )
        else:
            gate, up = (
                self.linear(f"{path}.{x}_proj", inner, self.hidden, bias) for x in ("gate", "up")
            )
        down = self.linear(f"{path}.down_proj", self.hidden, inner, bias, traits.residual_scale)
        return MlpSpec(gate, up, down, self.activation)

    # ---- layers ----

    def layer(self, n: int) -> LayerSpec:
        traits, names = self.traits, self.names
        mixers = traits.mixers(self, n) if traits.mixers else (self.attention(n),)
        feeds = traits.feeds(self, n) if traits.feeds else (self.mlp(self.path(n, names.feed)),)
        before = names.before_mixer if traits.parallel else names.before_feed
        mixing = self._branches(n, mixers, names.before_mixer, names.after_mixer)
        feeding = self._branches(n, feeds, before, names.after_feed)
        blocks = (mixing + feeding,) if traits.parallel else (mixing, feeding)
        return LayerSpec(tuple(block for block in blocks if block))

    def _branches(
        self, layer: int, ops: tuple[OpSpec, ...], before: str | None, after: str | None
    ) -> tuple[BranchSpec, ...]:
        first, last = (
            self.norm(self.path(layer, name), self.hidden) if name else None
            for name in (before, after)
        )
        return tuple(BranchSpec(first, op, last) for op in ops)


def norm_from_one(config: Config) -> NormSpec:
    """How norms compute whose weights count from one. GGUF files have it added already."""
    return NormSpec(None, 0.0, offset=0.0 if flag(config, "norms_count_from_zero") else 1.0)


def activation(config: Config) -> Activation:
    found = value(config, "hidden_activation", "hidden_act", "mlp_hidden_act") or "silu"
    if not isinstance(found, str) or found not in _ACTIVATIONS:
        raise ModelError(f"config: hidden_act={found!r} is not supported")
    return _ACTIVATIONS[found]
