"""Cohere's Command: one LayerNorm before attention and MLP side by side, logits scaled."""

from __future__ import annotations

from octavo.models.config import Config, flag, number
from octavo.models.decoder import Build, Names, Traits, decoder
from octavo.models.rope import rope_spec
from octavo.models.spec import ModelSpec, NormSpec, RopeSpec


def cohere(config: Config, kv_dtype: str) -> ModelSpec:
    return decoder("cohere", config, kv_dtype, _traits(config))


def cohere2(config: Config, kv_dtype: str) -> ModelSpec:
    """Windows turn, full attention knows no positions."""
    return decoder("cohere2", config, kv_dtype, _traits(config, rope=_rope_in_windows))


def _traits(config: Config, **more: object) -> Traits:
    bias = flag(config, "attention_bias")
    return Traits(
        names=Names(before_feed=None),
        qkv_bias=bias,
        o_bias=bias,
        parallel=True,
        norm=NormSpec(None, 0.0, kind="layer"),
        eps="layer_norm_eps",
        interleaved=True,
        head_scale=number(config, "logit_scale", default=1.0),
        understood=("logit_scale",),
        **more,  # type: ignore[arg-type]
    )


def _rope_in_windows(build: Build, layer: int) -> RopeSpec | None:
    if build.group(layer).kind != "window":
        return None
    return rope_spec(build.config, build.head_dim)
