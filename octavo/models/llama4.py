"""Llama 4's text decoder: chunked attention with rotary positions, full attention without."""

from __future__ import annotations

from dataclasses import replace

from octavo.models.build import Build, Names, biased
from octavo.models.config import Config, flag, integer, integers, number
from octavo.models.decoder import decoder
from octavo.models.experts import joined_experts, own_experts, router
from octavo.models.spec import (
    AttentionSpec,
    ModelSpec,
    NormSpec,
    OpSpec,
    RopeSpec,
    TemperSpec,
)

_UNDERSTOOD = (
    "attention_chunk_size",
    "attn_temperature_tuning",
    "no_rope_layers",
    "num_local_experts",
    "use_qk_norm",
)


def llama4(config: Config, kv_dtype: str) -> ModelSpec:
    traits = biased(
        config,
        names=Names(feed="feed_forward"),
        interleaved=True,
        rope=_rope,
        mixers=_attention,
        feeds=_feeds,
        understood=_UNDERSTOOD,
    )
    return decoder("llama4", config, kv_dtype, traits)


def _rope(build: Build, layer: int) -> RopeSpec | None:
    return build.plain_rope if build.group(layer).kind == "chunked" else None


def _attention(build: Build, layer: int) -> tuple[AttentionSpec]:
    config, attention = build.config, build.attention(layer)
    if attention.rope is None:
        return (replace(attention, temper=_temper(config)),)
    if not flag(config, "use_qk_norm"):
        return (attention,)
    q_norm, k_norm = (
        NormSpec(None, build.eps, groups=heads) for heads in (build.heads, build.kv_heads)
    )
    return (replace(attention, q_norm=q_norm, k_norm=k_norm, norm_after_rope=True),)


def _temper(config: Config) -> TemperSpec | None:
    if not flag(config, "attn_temperature_tuning", True):
        return None
    scale, length = (
        number(config, name, default=usual)
        for name, usual in (("attn_scale", 0.1), ("floor_scale", 8192))
    )
    return TemperSpec(scale, length, 1.0)


def _feeds(build: Build, layer: int) -> tuple[OpSpec, ...]:
    config, path = build.config, build.path(layer, build.names.feed)
    sparse = integers(config, "moe_layers")
    every = integer(config, "interleave_moe_layer_step", default=1)
    if not (layer in sparse if sparse is not None else (layer + 1) % every == 0):
        return (build.mlp(path, integer(config, "intermediate_size_mlp")),)
    experts = integer(config, "num_local_experts")
    routed = router(build, f"{path}.router", experts, scoring="sigmoid", normalise=False)
    if flag(config, "tensors_apart"):
        mixture = own_experts(build, f"{path}.experts", experts, build.inner, routed)
    else:
        tensors = f"{path}.experts.gate_up_proj", f"{path}.experts.down_proj"
        mixture = joined_experts(build, f"{path}.experts", experts, routed, tensors, turned=True)
    return replace(mixture, weigh_input=True), build.mlp(f"{path}.shared_expert", build.inner)
