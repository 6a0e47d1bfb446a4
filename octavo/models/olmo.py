"""OLMo 1, 2 and 3, and OLMoE."""

from __future__ import annotations

from typing import Any

from octavo.models.build import Build, Names, Traits, biased
from octavo.models.config import Config, integer
from octavo.models.decoder import decoder
from octavo.models.experts import normalises, own_experts, router
from octavo.models.rope import rope_spec
from octavo.models.spec import ExpertsSpec, ModelSpec, NormSpec, RopeSpec

_AFTER = Names(
    before_mixer=None,
    after_mixer="post_attention_layernorm",
    before_feed=None,
    after_feed="post_feedforward_layernorm",
)


def olmo(config: Config, kv_dtype: str) -> ModelSpec:
    """LayerNorm without parameters."""
    traits = biased(config, norm=NormSpec(None, 1e-5, kind="layer"), norm_weight=False)
    return decoder("olmo", config, kv_dtype, traits)


def olmo2(config: Config, kv_dtype: str) -> ModelSpec:
    """Norms behind attention and MLP, and over all of q and k."""
    return decoder("olmo2", config, kv_dtype, _traits(config))


def olmo3(config: Config, kv_dtype: str) -> ModelSpec:
    """Windows in some layers; the rotary positions of the others may be scaled."""
    return decoder("olmo3", config, kv_dtype, _traits(config, rope=_rope))


def olmoe(config: Config, kv_dtype: str) -> ModelSpec:
    traits = biased(config, qk_norm="whole", feeds=_experts, understood=("num_experts",))
    return decoder("olmoe", config, kv_dtype, traits)


def _traits(config: Config, **more: Any) -> Traits:
    return biased(config, names=_AFTER, qk_norm="whole", **more)


def _rope(build: Build, layer: int) -> RopeSpec:
    """Older files scale the layers without windows only."""
    config, local = build.config, build.group(layer).kind == "window"
    if local:
        config = {**config, "rope_scaling": None}
    return rope_spec(config, build.head_dim, "sliding_attention" if local else "full_attention")


def _experts(build: Build, layer: int) -> tuple[ExpertsSpec]:
    config, path = build.config, build.path(layer, build.names.feed)
    count = integer(config, "num_experts")
    routed = router(build, f"{path}.gate", count, normalise=normalises(config))
    return (own_experts(build, f"{path}.experts", count, build.inner, routed),)
