"""A model as data: a tree of frozen specs that says shapes, parameters and constants.

Three readers: `models.memory` adds up its bytes, `layers` builds torch modules from it, and
`native` emits a program from it. Nothing here computes.

        layer      a few residual blocks, one after another:      x += branch(x) + branch(x) + ...
        branch     post_norm(op(norm(x))), either norm may be absent
        op         attention, latent attention, MLP, experts, or one that keeps a state
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from octavo.base.kv import KVGroup

Activation = Literal["silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2"]


# ---- parameters ----


@dataclass(frozen=True)
class Part:
    """Where a parameter lies inside a tensor of the checkpoint: a matrix, or several.

    Of entry `index` along the first axis, if there is one, rows `start` to `start + take` are
    taken, and again `every` rows later; the matrix is `turned` around before that, or after. Then,
    where heads of `halved[0]` rows have `halved[2]` rotary rows from `halved[1]` on, neighbours of
    which turn together, these are put in halves: 0 2 4 ... 1 3 5 ...
    """

    tensor: str
    shape: tuple[int, ...]  # of the tensor
    index: int | None = None
    turned: Literal["before", "after"] | None = None
    start: int = 0
    take: int | None = None
    every: int | None = None
    halved: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class ParamSpec:
    """A parameter under a name of its own: a tensor of the checkpoint, part of one, or several
    equal ones `joined` along their first axis."""

    name: str
    shape: tuple[int, ...]
    part: Part | None = None
    joined: tuple[str, ...] = ()

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of what the checkpoint must have."""
        if self.part is not None:
            return {self.part.tensor: self.part.shape}
        if self.joined:
            each = (self.shape[0] // len(self.joined), *self.shape[1:])
            return dict.fromkeys(self.joined, each)
        return {self.name: self.shape}


@dataclass(frozen=True)
class LinearSpec:
    """y = scale (x W^T + b). weight: [out_features, in_features]."""

    weight: ParamSpec
    bias: ParamSpec | None = None
    scale: float = 1.0

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True)
class NormSpec:
    """RMSNorm, or LayerNorm, in float32; then times (offset + weight), and plus bias.

    The last axis is cut into `groups`, each normalised on its own; weight and bias cover all of
    them, or are those of each.
    """

    weight: ParamSpec | None
    eps: float
    bias: ParamSpec | None = None
    kind: Literal["rms", "layer"] = "rms"
    offset: float = 0.0
    groups: int = 1


# ---- attention ----


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
class AttendSpec:
    """How the queries of a layer meet its keys and values, each [heads, dim] a token.

    A token sees itself and those before it: all, `window` of them, or those of its own chunk of
    `chunk` positions. With `value_column` no values are kept: they are the columns of the keys from
    there on.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    scale: float
    window: int | None = None
    chunk: int | None = None
    soft_cap: float | None = None  # scores become soft_cap tanh(score / soft_cap)
    value_column: int | None = None

    @property
    def kept_dims(self) -> tuple[int, ...]:
        """Numbers that each KV head keeps of a token: its key, and its value."""
        return (
            (self.head_dim,) if self.value_column is not None else (self.head_dim, self.v_head_dim)
        )

    def oldest(self, position: int) -> int:
        """The first position that the token at `position` sees."""
        if self.chunk is not None:
            return position // self.chunk * self.chunk
        return 0 if self.window is None else max(0, position + 1 - self.window)


@dataclass(frozen=True)
class TemperSpec:
    """Queries at position p are multiplied by 1 + scale log(floor((p + offset) / length) + 1)."""

    scale: float
    length: float
    offset: float


@dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention. q: [num_heads * head_dim], k: [num_kv_heads * head_dim],
    v: [num_kv_heads * v_head_dim]; `gate` [num_heads * v_head_dim] multiplies, by its sigmoid,
    what is mixed."""

    attend: AttendSpec
    q: LinearSpec
    k: LinearSpec
    v: LinearSpec
    o: LinearSpec
    rope: RopeSpec | None
    q_norm: NormSpec | None = None
    k_norm: NormSpec | None = None
    norm_after_rope: bool = False
    gate: LinearSpec | None = None
    sinks: ParamSpec | None = None  # [num_heads]: a further logit in each softmax
    temper: TemperSpec | None = None


@dataclass(frozen=True)
class LatentAttentionSpec:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) in its absorbed form.

    Kept are a rotary key for all heads and a latent that stands for all keys and values. Each
    head's query is brought into the latent space by `k_up`, and what it mixes back by `v_up`:
    scores and outputs are those of one KV head, whatever the number of tokens.
    """

    attend: AttendSpec  # one KV head of rotary + latent columns; values are the latent
    q_down: LinearSpec | None  # queries pass a latent of their own
    q_down_norm: NormSpec | None
    q_rotary: tuple[LinearSpec, ...]  # of each head: [rotary]
    q_plain: LinearSpec  # [num_heads * plain]
    k_rotary: LinearSpec  # [rotary]
    latent: LinearSpec  # [latent]
    latent_norm: NormSpec
    k_up: tuple[LinearSpec, ...]  # of each head: plain -> latent
    v_up: tuple[LinearSpec, ...]  # of each head: latent -> value
    o: LinearSpec
    rope: RopeSpec


# ---- what is done to each token alone ----


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


# ---- what keeps a state ----


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


# ---- the tree ----

StateSpec: TypeAlias = ShortConvSpec | Mamba1Spec | Mamba2Spec | DeltaSpec
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
