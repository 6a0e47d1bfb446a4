"""Qwen3-Next and Qwen3.5: gated delta nets among gated attention; norms centred at zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from octavo.base.errors import ModelError
from octavo.models.build import Build, Traits, biased, norm_from_one
from octavo.models.config import Config, flag, integer, section, value
from octavo.models.decoder import decoder
from octavo.models.qwen import EXPERTS, feeds
from octavo.models.spec import (
    AttentionSpec,
    DeltaSpec,
    LinearSpec,
    ModelSpec,
    NormSpec,
    OpSpec,
    ParamSpec,
)
from octavo.models.state_spaces import convolution, parts


def qwen3_next(config: Config, kv_dtype: str) -> ModelSpec:
    """Experts, and an MLP for all tokens beside them."""
    traits = replace(_traits(config, _by_key_head), feeds=feeds)
    return decoder("qwen3_next", config, kv_dtype, traits)


def qwen3_5(config: Config, kv_dtype: str) -> ModelSpec:
    return decoder("qwen3_5", _of_text(config), kv_dtype, _traits(config, _one_by_one))


def qwen3_5_moe(config: Config, kv_dtype: str) -> ModelSpec:
    """Experts in every layer; their weights always add up to 1."""
    traits = replace(_traits(config, _one_by_one), feeds=feeds)
    plain = {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    return decoder("qwen3_5_moe", {**_of_text(config), **plain}, kv_dtype, traits)


def _of_text(config: Config) -> Config:
    """Without what says which of its three positions turns a token: in text all are equal."""
    names = ("rope_parameters", "rope_scaling")
    found = {name: section(config, name) for name in names}
    kept = {
        name: {key: entry for key, entry in rope.items() if not key.startswith("mrope_")}
        for name, rope in found.items()
        if rope is not None
    }
    return {**config, **kept}


@dataclass(frozen=True)
class _Entering:
    """The linears that read a layer's input."""

    mixed: tuple[LinearSpec, ...]  # q, k, v
    z: LinearSpec
    beta: LinearSpec
    decay: LinearSpec


@dataclass(frozen=True)
class _Sizes:
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim


_Enter = Callable[[Build, str, _Sizes], _Entering]


def _traits(config: Config, enter: _Enter) -> Traits:
    """`enter`: how the linears of a delta net are stored."""

    def mixers(build: Build, layer: int) -> tuple[OpSpec]:
        if layer in build.groups:
            return (_gated_attention(build, layer),)
        return (_delta(build, build.path(layer, "linear_attn"), enter),)

    return biased(
        config,
        norm=norm_from_one(config),
        qk_norm="head",
        mixers=mixers,
        understood=(*EXPERTS, "partial_rotary_factor"),
    )


def _gated_attention(build: Build, layer: int) -> AttentionSpec:
    """Each head's rows of `q_proj` are those of its query, then those of its gate."""
    name, dim = f"{build.path(layer, build.names.mixer)}.q_proj", build.head_dim
    shape = (2 * build.heads * dim, build.hidden)
    q, gate = (
        build.cut(f"{name}.{part}", name, shape, start, dim, build.traits.qkv_bias, every=2 * dim)
        for part, start in (("query", 0), ("gate", dim))
    )
    return replace(build.attention(layer), q=q, gate=gate)


def _delta(build: Build, path: str, enter: _Enter) -> DeltaSpec:
    config, sizes = build.config, _sizes(build.config)
    entering = enter(build, path, sizes)
    norm = ParamSpec(f"{path}.norm.weight", (sizes.value_dim,))
    length = integer(config, "linear_conv_kernel_dim", default=4)
    return DeltaSpec(
        key_heads=sizes.key_heads,
        value_heads=sizes.value_heads,
        key_dim=sizes.key_dim,
        value_dim=sizes.value_dim,
        mixed=entering.mixed,
        convolution=convolution(f"{path}.conv1d", 2 * sizes.keys + sizes.values, length, False),
        decay=entering.decay,
        beta=entering.beta,
        a_log=ParamSpec(f"{path}.A_log", (sizes.value_heads,)),
        dt_bias=ParamSpec(f"{path}.dt_bias", (sizes.value_heads,)),
        z=entering.z,
        norm=NormSpec(norm, build.eps, groups=sizes.value_heads),
        out=build.linear(f"{path}.out_proj", build.hidden, sizes.values),
    )


def _sizes(config: Config) -> _Sizes:
    if value(config, "hidden_act") not in (None, "silu", "swish"):
        raise ModelError("config: after a convolution only silu is supported")
    key_heads, value_heads = (integer(config, f"linear_num_{x}_heads") for x in ("key", "value"))
    key_dim, value_dim = (integer(config, f"linear_{x}_head_dim") for x in ("key", "value"))
    if value_heads % key_heads:
        raise ModelError(f"config: {value_heads} value heads are no multiple of {key_heads}")
    return _Sizes(key_heads, value_heads, key_dim, value_dim)


def _one_by_one(build: Build, path: str, sizes: _Sizes) -> _Entering:
    beta, decay = (
        build.linear(f"{path}.in_proj_{x}", sizes.value_heads, build.hidden) for x in "ba"
    )
    *mixed, z = _qkv_and_z(build, path, sizes)
    return _Entering(tuple(mixed), z, beta, decay)


def _by_key_head(build: Build, path: str, sizes: _Sizes) -> _Entering:
    """In one tensor lie, for each key head, the rows of its query, its key, its values and their
    gates, which GGUF files have apart; in another those of their betas and decays."""
    hidden, heads = build.hidden, sizes.key_heads
    together = sizes.value_heads // heads
    values = together * sizes.value_dim
    rows = {"q": sizes.key_dim, "k": sizes.key_dim, "v": values, "z": values}
    if flag(build.config, "tensors_apart"):
        *mixed, z = _qkv_and_z(build, path, sizes)
    else:
        *mixed, z = parts(build, f"{path}.in_proj_qkvz", hidden, rows, heads=heads)
    rows = {"b": together, "a": together}
    beta, decay = parts(build, f"{path}.in_proj_ba", hidden, rows, heads=heads)
    return _Entering(tuple(mixed), z, beta, decay)


def _qkv_and_z(build: Build, path: str, sizes: _Sizes) -> list[LinearSpec]:
    rows = {"q": sizes.keys, "k": sizes.keys, "v": sizes.values}
    qkv = parts(build, f"{path}.in_proj_qkv", build.hidden, rows)
    return [*qkv, build.linear(f"{path}.in_proj_z", sizes.values, build.hidden)]
