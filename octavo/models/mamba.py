"""Mamba, Falcon-Mamba and Mamba-2: a mixer that keeps a state in every layer, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from octavo.models.build import Build, Names, Traits
from octavo.models.config import Config, flag, number
from octavo.models.decoder import decoder
from octavo.models.spec import Mamba1Spec, Mamba2Spec, ModelSpec, NormSpec, OpSpec
from octavo.models.state_spaces import mamba1, mamba2

# A state sums up any number of tokens: these models know no positions, so a bound is ours to set.
LONGEST = 2**20  # tokens

NAMES = Names(
    layers="backbone.layers",
    mixer="mixer",
    before_mixer="norm",
    embedding="backbone.embeddings",
    norm="backbone.norm_f",
)


def mamba(config: Config, kv_dtype: str) -> ModelSpec:
    return _states_only(
        "mamba",
        config,
        kv_dtype,
        Traits(NAMES, eps="layer_norm_epsilon", mixers=_mamba1, feeds=nothing),
    )


def falcon_mamba(config: Config, kv_dtype: str) -> ModelSpec:
    """Norms without weights over B, C and what makes the steps."""
    traits = Traits(NAMES, eps="layer_norm_epsilon", mixers=_mamba1_normed, feeds=nothing)
    return _states_only("falcon_mamba", config, kv_dtype, traits)


def mamba2_family(config: Config, kv_dtype: str) -> ModelSpec:
    return _states_only(
        "mamba2",
        config,
        kv_dtype,
        Traits(NAMES, eps="layer_norm_epsilon", mixers=_mamba2, feeds=nothing),
    )


def _states_only(family: str, config: Config, kv_dtype: str, traits: Traits) -> ModelSpec:
    return decoder(family, {"max_position_embeddings": LONGEST, **config}, kv_dtype, traits)


def nothing(build: Build, layer: int) -> tuple[OpSpec, ...]:
    return ()


def _mamba1(build: Build, layer: int) -> tuple[Mamba1Spec]:
    bias = flag(build.config, "use_bias")
    return (mamba1(build, build.path(layer, "mixer"), bias),)


def _mamba1_normed(build: Build, layer: int) -> tuple[Mamba1Spec]:
    norm = NormSpec(None, number(build.config, "mixer_rms_eps", default=1e-6))
    (spec,) = _mamba1(build, layer)
    return (replace(spec, dt_norm=norm, b_norm=norm, c_norm=norm),)


def _mamba2(build: Build, layer: int) -> tuple[Mamba2Spec]:
    return (mamba2(build, build.path(layer, "mixer"), flag(build.config, "use_bias")),)
