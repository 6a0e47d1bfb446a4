"""LFM2, dense and with experts: short convolutions among attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.models.build import Build, Names, Traits
from octavo.models.config import Config, count, flag, integer, number, value
from octavo.models.decoder import decoder
from octavo.models.experts import normalises, own_experts, router
from octavo.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    MlpSpec,
    ModelSpec,
    OpSpec,
    ParamSpec,
    ShortConvSpec,
)
from octavo.models.state_spaces import convolution, parts

_NAMES = Names(
    output="out_proj",
    feed="feed_forward",
    before_mixer="operator_norm",
    before_feed="ffn_norm",
    norm="model.embedding_norm",
)


def lfm2(config: Config, kv_dtype: str) -> ModelSpec:
    return decoder("lfm2", _named(config), kv_dtype, _traits(feeds=_mlps))


def lfm2_moe(config: Config, kv_dtype: str) -> ModelSpec:
    """The first layers are dense."""
    traits = _traits(feeds=_feeds, understood=("num_experts",))
    return decoder("lfm2_moe", _named(config), kv_dtype, traits)


def _traits(**more: Any) -> Traits:
    return Traits(_NAMES, eps="norm_eps", mixers=_mixers, **more)


def _named(config: Config) -> dict[str, Any]:
    """With the names that newer files have for the same."""
    tied = flag(config, "tie_embedding", flag(config, "tie_word_embeddings", True))
    inner = value(config, "block_ff_dim", "intermediate_size")
    return {**config, "tie_word_embeddings": tied, "intermediate_size": inner}


def _mixers(build: Build, layer: int) -> tuple[OpSpec]:
    return (_attention(build, layer) if layer in build.groups else _short_conv(build, layer),)


def _attention(build: Build, layer: int) -> AttentionSpec:
    path = build.path(layer, build.names.mixer)
    q_norm, k_norm = (
        build.norm(f"{path}.{x}_layernorm", build.head_dim, groups=heads)
        for x, heads in (("q", build.heads), ("k", build.kv_heads))
    )
    return replace(build.attention(layer), q_norm=q_norm, k_norm=k_norm)


def _short_conv(build: Build, layer: int) -> ShortConvSpec:
    path, hidden, bias = build.path(layer, "conv"), build.hidden, flag(build.config, "conv_bias")
    rows = dict.fromkeys(("b", "c", "x"), hidden)
    b, c, x = parts(build, f"{path}.in_proj", hidden, rows, bias)
    length = integer(build.config, "conv_L_cache")
    return ShortConvSpec(
        b=b,
        c=c,
        x=x,
        convolution=convolution(f"{path}.conv", hidden, length, bias, "none"),
        out=build.linear(f"{path}.out_proj", hidden, hidden, bias),
    )


def _mlps(build: Build, layer: int) -> tuple[MlpSpec]:
    return (_mlp(build, layer, _adjusted(build)),)


def _mlp(build: Build, layer: int, inner: int) -> MlpSpec:
    path, hidden = build.path(layer, build.names.feed), build.hidden
    gate, up = (build.linear(f"{path}.{name}", inner, hidden) for name in ("w1", "w3"))
    return MlpSpec(gate, up, build.linear(f"{path}.w2", hidden, inner))


def _adjusted(build: Build) -> int:
    """Two thirds of the size in the config, times a factor, up to a round number."""
    config, inner = build.config, build.inner
    if not flag(config, "block_auto_adjust_ff_dim", True):
        return inner
    inner = int(2 * inner / 3)
    inner = int(number(config, "block_ffn_dim_multiplier", default=1.0) * inner)
    multiple = integer(config, "block_multiple_of", default=256)
    return -(-inner // multiple) * multiple


def _feeds(build: Build, layer: int) -> tuple[MlpSpec | ExpertsSpec]:
    if layer < count(build.config, "num_dense_layers"):
        return (_mlp(build, layer, build.inner),)
    return (_experts(build, build.path(layer, build.names.feed)),)


def _experts(build: Build, path: str) -> ExpertsSpec:
    config = build.config
    experts, inner = integer(config, "num_experts"), integer(config, "moe_intermediate_size")
    biased = flag(config, "use_expert_bias", True)
    routed = router(
        build,
        f"{path}.gate",
        experts,
        scoring="sigmoid",
        normalise=normalises(config, True),
        eps=1e-6,
        scale=number(config, "routed_scaling_factor", default=1.0),
        bias=ParamSpec(f"{path}.expert_bias", (experts,)) if biased else None,
    )
    return own_experts(build, f"{path}.experts", experts, inner, routed, ("w1", "w3", "w2"))
