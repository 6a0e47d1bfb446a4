"""Cohere's Command: one LayerNorm before attention and MLP side by side, logits scaled."""

from __future__ import annotations

from typing import Any

from octavo.models.build import Build, Names, Traits, biased
from octavo.models.config import Config, number
from octavo.models.decoder import decoder
from octavo.models.spec import ModelSpec, NormSpec, RopeSpec


def cohere(config: Config, kv_dtype: str) -> ModelSpec:
    return decoder("cohere", config, kv_dtype, _traits(config))


def cohere2(config: Config, kv_dtype: str) -> ModelSpec:
    """Windows turn, full attention knows no positions."""
    return decoder("cohere2", config, kv_dtype, _traits(config, rope=_rope_in_windows))


def _traits(config: Config, **more: Any) -> Traits:
    return biased(
        config,
        names=Names(before_feed=None),
        parallel=True,
        norm=NormSpec(None, 0.0, kind="layer"),
        eps="layer_norm_eps",
        interleaved=True,
        head_scale=number(config, "logit_scale", default=1.0),
        understood=("logit_scale",),
        **more,
    )


def _rope_in_windows(build: Build, layer: int) -> RopeSpec | None:
    return build.plain_rope if build.group(layer).kind == "window" else None
