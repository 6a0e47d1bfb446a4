"""GLM-4, the later GLM-4-0414, and GLM-4.5 with experts. Half of each head turns."""

from __future__ import annotations

from octavo.models.build import Names, Traits
from octavo.models.config import Config, flag
from octavo.models.decoder import decoder
from octavo.models.deepseek import EXPERTS, feeds
from octavo.models.spec import ModelSpec

_AROUND = Names(after_mixer="post_self_attn_layernorm", after_feed="post_mlp_layernorm")


def glm(config: Config, kv_dtype: str) -> ModelSpec:
    return decoder("glm", config, kv_dtype, _traits(config, Names()))


def glm4(config: Config, kv_dtype: str) -> ModelSpec:
    """Norms before and behind attention and MLP."""
    return decoder("glm4", config, kv_dtype, _traits(config, _AROUND))


def glm4_moe(config: Config, kv_dtype: str) -> ModelSpec:
    """Experts as DeepSeek-V3 has them."""
    traits = Traits(
        qkv_bias=flag(config, "attention_bias"),
        qk_norm="head" if flag(config, "use_qk_norm") else None,
        feeds=feeds,
        understood=(*EXPERTS, "use_qk_norm", "partial_rotary_factor"),
    )
    return decoder("glm4_moe", config, kv_dtype, traits)


def _traits(config: Config, names: Names) -> Traits:
    return Traits(
        names=names,
        qkv_bias=flag(config, "attention_bias"),
        fused_mlp=True,
        interleaved=True,
        understood=("partial_rotary_factor",),
    )
