"""The tree that Llama-like decoders share. A family file says only what differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.base.errors import ModelError
from octavo.base.kv import KVGroup
from octavo.models.config import Config, flag, integer, number, refuse_unknown_mathematics, value
from octavo.models.kv_groups import kv_groups
from octavo.models.memory import kv_head_bytes
from octavo.models.rope import rope_spec, scaled_length
from octavo.models.spec import (
    AttentionSpec,
    LayerSpec,
    LinearSpec,
    MlpSpec,
    ModelSpec,
    NormSpec,
    ParamSpec,
    RopeSpec,
)

Activation = Literal["silu", "gelu", "gelu_tanh"]

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


@dataclass(frozen=True)
class Traits:
    """How a family's layers differ from each other family's."""

    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False


@dataclass(frozen=True)
class _Sizes:
    """The numbers of a config that shapes are made of."""

    hidden: int
    inner: int  # of the MLP
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    activation: Activation


def decoder(family: str, config: Config, kv_dtype: str, traits: Traits) -> ModelSpec:
    """The spec of a Llama-like decoder whose KV is kept in `kv_dtype`.

    Raises:
        ModelError: a field is missing, impossible, or asks for mathematics not supported.
    """
    refuse_unknown_mathematics(config)
    sizes = _sizes(config)
    groups = kv_groups(config, kv_dtype)
    rope = rope_spec(config, sizes.head_dim)
    windows = _windows(groups)
    _check_kv(groups, sizes, kv_dtype)
    vocab = integer(config, "vocab_size")
    embedding = ParamSpec("model.embed_tokens.weight", (vocab, sizes.hidden))
    tied = flag(config, "tie_word_embeddings")
    head = embedding if tied else ParamSpec("lm_head.weight", (vocab, sizes.hidden))
    return ModelSpec(
        family=family,
        vocab_size=vocab,
        hidden_size=sizes.hidden,
        max_model_len=scaled_length(config),
        embedding=embedding,
        layers=tuple(_layer(i, sizes, rope, windows[i], traits) for i in sorted(windows)),
        norm=_norm("model.norm", sizes.hidden, sizes.eps),
        head=LinearSpec(head),
        kv_groups=groups,
        eos_token_ids=token_ids(config, "eos_token_id"),
        bos_token_id=next(iter(token_ids(config, "bos_token_id")), None),
    )


def token_ids(config: Config, name: str) -> tuple[int, ...]:
    """A token id, or several, or none, under `name`."""
    found = config.get(name)
    listed = found if isinstance(found, list) else [] if found is None else [found]
    for token in listed:
        if isinstance(token, bool) or not isinstance(token, int) or token < 0:
            raise ModelError(f"config: {name} must be token ids, got {found!r}")
    return tuple(listed)


def _sizes(config: Config) -> _Sizes:
    hidden, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    kv_heads = integer(config, "num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise ModelError(f"config: {heads} attention heads are no multiple of {kv_heads} KV heads")
    activation = value(config, "hidden_act", "hidden_activation") or "silu"
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise ModelError(f"config: hidden_act={activation!r} is not supported")
    return _Sizes(
        hidden=hidden,
        inner=integer(config, "intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=integer(config, "head_dim", default=hidden // heads),
        eps=number(config, "rms_norm_eps", default=1e-6),
        activation=_ACTIVATIONS[activation],
    )


def _windows(groups: tuple[KVGroup, ...]) -> dict[int, int | None]:
    """Layer -> tokens it sees, from the same groups that its KV memory is counted by."""
    for group in groups:
        if group.kind not in ("full", "window"):
            raise ModelError(f"config: {group.kind} attention layers are not supported")
    return {layer: group.window for group in groups for layer in group.layers}


def _check_kv(groups: tuple[KVGroup, ...], sizes: _Sizes, kv_dtype: str) -> None:
    """What is counted must be what the layers built here keep."""
    kept = 2 * sizes.kv_heads * kv_head_bytes(kv_dtype, sizes.head_dim)  # one layer, one token
    for group in groups:
        if group.bytes_per_token != kept * len(group.layers):
            raise ModelError(
                f"config: its KV fields give {group.bytes_per_token} bytes a token for "
                f"{len(group.layers)} layers, but each keeps {kept}"
            )


def _layer(
    index: int, sizes: _Sizes, rope: RopeSpec, window: int | None, traits: Traits
) -> LayerSpec:
    prefix = f"model.layers.{index}"
    return LayerSpec(
        input_norm=_norm(f"{prefix}.input_layernorm", sizes.hidden, sizes.eps),
        attention=_attention(f"{prefix}.self_attn", sizes, rope, window, traits),
        post_norm=_norm(f"{prefix}.post_attention_layernorm", sizes.hidden, sizes.eps),
        mlp=_mlp(f"{prefix}.mlp", sizes, traits.mlp_bias),
    )


def _attention(
    prefix: str, sizes: _Sizes, rope: RopeSpec, window: int | None, traits: Traits
) -> AttentionSpec:
    dim, q_width = sizes.head_dim, sizes.heads * sizes.head_dim
    kv_width = sizes.kv_heads * dim
    norms = traits.qk_norm
    return AttentionSpec(
        num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads,
        head_dim=dim,
        v_head_dim=dim,
        scale=dim**-0.5,
        q=_linear(f"{prefix}.q_proj", q_width, sizes.hidden, traits.qkv_bias),
        k=_linear(f"{prefix}.k_proj", kv_width, sizes.hidden, traits.qkv_bias),
        v=_linear(f"{prefix}.v_proj", kv_width, sizes.hidden, traits.qkv_bias),
        o=_linear(f"{prefix}.o_proj", sizes.hidden, q_width, traits.o_bias),
        rope=rope,
        q_norm=_norm(f"{prefix}.q_norm", dim, sizes.eps) if norms else None,
        k_norm=_norm(f"{prefix}.k_norm", dim, sizes.eps) if norms else None,
        window=window,
    )


def _mlp(prefix: str, sizes: _Sizes, bias: bool) -> MlpSpec:
    return MlpSpec(
        gate=_linear(f"{prefix}.gate_proj", sizes.inner, sizes.hidden, bias),
        up=_linear(f"{prefix}.up_proj", sizes.inner, sizes.hidden, bias),
        down=_linear(f"{prefix}.down_proj", sizes.hidden, sizes.inner, bias),
        activation=sizes.activation,
    )


def _linear(prefix: str, rows: int, columns: int, bias: bool) -> LinearSpec:
    weight = ParamSpec(f"{prefix}.weight", (rows, columns))
    return LinearSpec(weight, ParamSpec(f"{prefix}.bias", (rows,)) if bias else None)


def _norm(prefix: str, size: int, eps: float) -> NormSpec:
    return NormSpec(ParamSpec(f"{prefix}.weight", (size,)), eps)
