"""Attention: how queries meet keys and values, and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.models.spec.params import LinearSpec, NormSpec, ParamSpec


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
