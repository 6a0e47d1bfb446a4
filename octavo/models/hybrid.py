"""Jamba, Bamba, Granite 4 and Falcon-H1: state-space mixers among attention, or beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.base.errors import ModelError
from octavo.models import granite
from octavo.models.build import Build, Names, Traits, biased
from octavo.models.config import Config, count, flag, integer, value
from octavo.models.decoder import decoder
from octavo.models.experts import own_experts, router
from octavo.models.spec import AttentionSpec, MlpSpec, ModelSpec, OpSpec, RopeSpec
from octavo.models.state_spaces import mamba1, mamba2

_NAMES = Names(feed="feed_forward", before_feed="pre_ff_layernorm", norm="model.final_layernorm")


def jamba(config: Config, kv_dtype: str) -> ModelSpec:
    """No rotary positions; experts in some layers."""
    traits = Traits(
        _NAMES,
        rope=no_rope,
        mixers=_jamba_mixers,
        feeds=_jamba_feeds,
        understood=("num_experts", "num_local_experts"),
    )
    return decoder("jamba", config, kv_dtype, traits)


def bamba(config: Config, kv_dtype: str) -> ModelSpec:
    """Half of each attention head turns."""
    traits = biased(
        config,
        names=_NAMES,
        mlp_bias=flag(config, "mlp_bias"),
        mixers=_mamba2_or_attention,
        understood=("partial_rotary_factor",),
    )
    return decoder("bamba", config, kv_dtype, traits)


def granitemoehybrid(config: Config, kv_dtype: str) -> ModelSpec:
    """An MLP for all tokens, beside experts where there are any; rotary positions only where the
    config says so."""
    made = granite.traits(
        config,
        rope=None if value(config, "position_embedding_type") == "rope" else no_rope,
        mixers=_mamba2_or_attention,
        feeds=_granite_feeds,
        understood=(*granite.MULTIPLIERS, "num_local_experts"),
    )
    return decoder("granitemoehybrid", config, kv_dtype, made)


def falcon_h1(config: Config, kv_dtype: str) -> ModelSpec:
    """Attention and Mamba-2 side by side in every layer, and a multiplier for nearly everything."""
    traits = biased(
        config,
        names=_NAMES,
        mlp_bias=flag(config, "mlp_bias"),
        embedding_scale=_multiplier(config, "embedding_multiplier"),
        head_scale=_multiplier(config, "lm_head_multiplier"),
        mixers=_falcon_mixers,
        feeds=_falcon_feeds,
        understood=("embedding_multiplier",),
    )
    return decoder("falcon_h1", config, kv_dtype, traits)


def _mamba2_or_attention(build: Build, layer: int) -> tuple[OpSpec]:
    if layer in build.groups:
        return (build.attention(layer),)
    bias = flag(build.config, "mamba_proj_bias")
    return (mamba2(build, build.path(layer, "mamba"), bias),)


def no_rope(build: Build, layer: int) -> RopeSpec | None:
    return None


def _granite_feeds(build: Build, layer: int) -> tuple[OpSpec, ...]:
    if count(build.config, "num_local_experts"):
        return granite.experts_of(build, layer)
    return (granite.shared_mlp(build, layer),)


# ---- Jamba ----


def _jamba_mixers(build: Build, layer: int) -> tuple[OpSpec]:
    if layer in build.groups:
        return (build.attention(layer),)
    config, path = build.config, build.path(layer, "mamba")
    spec = mamba1(build, path, flag(config, "mamba_proj_bias"))
    dt, b, c = (
        build.norm(f"{path}.{name}_layernorm", linear.out_features)
        for name, linear in (("dt", spec.dt_down), ("b", spec.b), ("c", spec.c))
    )
    return (replace(spec, dt_norm=dt, b_norm=b, c_norm=c),)


def _jamba_feeds(build: Build, layer: int) -> tuple[OpSpec]:
    config, path = build.config, build.path(layer, build.names.feed)
    period = integer(config, "expert_layer_period", default=2)
    offset = count(config, "expert_layer_offset") if "expert_layer_offset" in config else 1
    experts = integer(config, "num_experts", "num_local_experts", default=16)
    if experts == 1 or layer % period != offset:
        return (build.mlp(path),)
    routed = router(build, f"{path}.router", experts, normalise=False)
    return (own_experts(build, f"{path}.experts", experts, build.inner, routed),)


# ---- Falcon-H1 ----


def _falcon_mixers(build: Build, layer: int) -> tuple[OpSpec, OpSpec]:
    return _falcon_mamba2(build, layer), _falcon_attention(build, layer)


def _falcon_attention(build: Build, layer: int) -> AttentionSpec:
    config, spec = build.config, build.attention(layer)
    entering = _entering(config, "attention_in_multiplier", "attention_bias")
    key = entering * _multiplier(config, "key_multiplier")
    return replace(
        spec,
        q=replace(spec.q, scale=entering),
        k=replace(spec.k, scale=key),
        v=replace(spec.v, scale=entering),
        o=replace(spec.o, scale=_multiplier(config, "attention_out_multiplier")),
    )


def _falcon_mamba2(build: Build, layer: int) -> OpSpec:
    config = build.config
    entering = _entering(config, "ssm_in_multiplier", "mamba_proj_bias")
    spec = mamba2(
        build,
        build.path(layer, "mamba"),
        flag(config, "mamba_proj_bias"),
        out_bias=flag(config, "projectors_bias"),
        normed=flag(config, "mamba_rms_norm"),
        norm_before_gate=flag(config, "mamba_norm_before_gate", True),
        scales=tuple(entering * m for m in _multipliers(config, "ssm_multipliers", 5)),
    )
    return replace(spec, out=replace(spec.out, scale=_multiplier(config, "ssm_out_multiplier")))


def _falcon_feeds(build: Build, layer: int) -> tuple[MlpSpec]:
    spec = build.mlp(build.path(layer, build.names.feed))
    gate, down = _multipliers(build.config, "mlp_multipliers", 2)
    assert spec.gate is not None
    return (
        replace(spec, gate=replace(spec.gate, scale=gate), down=replace(spec.down, scale=down)),
    )


def _entering(config: Config, name: str, bias: str) -> float:
    """A multiplier of what enters a linear, which is one of what leaves it if it has no bias."""
    found = _multiplier(config, name)
    if found != 1.0 and flag(config, bias):
        raise ModelError(f"config: {name} is not supported with {bias}")
    return found


def _multiplier(config: Config, name: str) -> float:
    return _multipliers({name: [config.get(name)]}, name, 1)[0]


def _multipliers(config: Config, name: str, most: int) -> list[float]:
    """Numbers, of either sign; 1 where they are missing."""
    found = value(config, name)
    listed = [None] * most if found is None else found
    if not isinstance(listed, list) or len(listed) != most or not all(map(_is_number, listed)):
        raise ModelError(f"config: {name} must be {most} numbers, got {found!r}")
    return [1.0 if entry is None else float(entry) for entry in listed]


def _is_number(entry: Any) -> bool:
    return entry is None or (isinstance(entry, (int, float)) and not isinstance(entry, bool))
