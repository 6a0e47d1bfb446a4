"""Llama 2, 3 and 3.x, SmolLM, Mistral and Ministral."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.base.errors import ModelError
from octavo.models.build import Build, Traits, biased
from octavo.models.config import Config, flag, number
from octavo.models.decoder import decoder
from octavo.models.layer_kinds import turning_layers
from octavo.models.rope import rope_parameters
from octavo.models.spec import AttentionSpec, ModelSpec, RopeSpec, TemperSpec


def llama(config: Config, kv_dtype: str) -> ModelSpec:
    """Biases are optional; `pretraining_tp` only splits the same products and is of no account."""
    if config.get("sliding_window") is not None:
        raise ModelError("config: sliding_window is not supported for llama")
    return decoder("llama", config, kv_dtype, _traits(config))


def smollm3(config: Config, kv_dtype: str) -> ModelSpec:
    """Some layers have no rotary positions."""
    traits = _traits(config, rope=_rope_of_listed, understood=("no_rope_layers",))
    return decoder("smollm3", config, kv_dtype, traits)


def mistral(config: Config, kv_dtype: str) -> ModelSpec:
    """No biases; every layer has the window, if there is one."""
    if config.get("layer_types") is not None:
        raise ModelError("config: layer_types is not supported for mistral")
    return decoder("mistral", config, kv_dtype, Traits())


def ministral(config: Config, kv_dtype: str) -> ModelSpec:
    """Windows in some layers."""
    return decoder("ministral", config, kv_dtype, Traits())


def ministral3(config: Config, kv_dtype: str) -> ModelSpec:
    """Queries are tempered beyond the original context."""
    return decoder("ministral3", config, kv_dtype, Traits(mixers=_tempered))


def _traits(config: Config, **more: Any) -> Traits:
    return biased(config, mlp_bias=flag(config, "mlp_bias"), **more)


def _rope_of_listed(build: Build, layer: int) -> RopeSpec | None:
    return build.plain_rope if turning_layers(build.config)[layer] else None


def _tempered(build: Build, layer: int) -> tuple[AttentionSpec]:
    rope, attention = rope_parameters(build.config), build.attention(layer)
    if "llama_4_scaling_beta" not in rope:
        return (attention,)
    scale = number(rope, "llama_4_scaling_beta")
    length = number(rope, "original_max_position_embeddings")
    return (replace(attention, temper=TemperSpec(scale, length, 0.0)),)
