"""Nemotron-H: each layer does one thing: Mamba-2, attention, an MLP, or experts."""

from __future__ import annotations

import math
from dataclasses import replace

from octavo.base.errors import ModelError
from octavo.models.build import Build, Traits
from octavo.models.config import Config, flag, integer, number, value
from octavo.models.decoder import decoder
from octavo.models.experts import normalises, router
from octavo.models.hybrid import no_rope
from octavo.models.layer_kinds import listed_type
from octavo.models.mamba import NAMES, nothing
from octavo.models.spec import ExpertsSpec, MlpSpec, ModelSpec, OpSpec, ParamSpec
from octavo.models.state_spaces import mamba2


def nemotron_h(config: Config, kv_dtype: str) -> ModelSpec:
    """No rotary positions; MLPs have no gate."""
    if value(config, "moe_latent_size") is not None:
        raise ModelError("config: moe_latent_size is not supported")
    traits = Traits(
        NAMES,
        eps="layer_norm_epsilon",
        mlp_bias=flag(config, "mlp_bias"),
        rope=no_rope,
        mixers=_ops,
        feeds=nothing,
        understood=("n_routed_experts",),
    )
    return decoder("nemotron_h", config, kv_dtype, traits)


def _ops(build: Build, layer: int) -> tuple[OpSpec, ...]:
    path, kind = build.path(layer, build.names.mixer), listed_type(build.config, layer)
    if layer in build.groups:
        return (build.attention(layer),)
    if kind in ("mlp", "-"):
        return (_mlp(build, path, build.inner),)
    return _experts(build, path) if kind in ("moe", "E") else (_mamba2(build, path),)


def _mamba2(build: Build, path: str) -> OpSpec:
    """Steps are bounded as in Transformers, from below only, whatever `time_step_limit` says."""
    least = number(build.config, "time_step_min", "mamba_dt_min", default=0.001)
    return mamba2(build, path, flag(build.config, "use_bias"), dt_limits=(least, math.inf))


def _mlp(build: Build, path: str, inner: int) -> MlpSpec:
    return replace(build.mlp(path, inner), gate=None)


def _experts(build: Build, path: str) -> tuple[ExpertsSpec, MlpSpec]:
    config, hidden = build.config, build.hidden
    experts = integer(config, "n_routed_experts")
    inner = integer(config, "moe_intermediate_size")
    shared = integer(config, "moe_shared_expert_intermediate_size")
    routed = router(
        build,
        f"{path}.gate",
        experts,
        scoring="sigmoid",
        normalise=normalises(config, True),
        scale=number(config, "routed_scaling_factor", default=1.0),
        bias=ParamSpec(f"{path}.gate.e_score_correction_bias", (experts,)),
        groups=integer(config, "n_group", default=1),
        top_groups=integer(config, "topk_group", default=1),
        group_score="top2",
    )
    each = [f"{path}.experts.{e}" for e in range(experts)]
    ups = tuple(build.linear(f"{expert}.up_proj", inner, hidden) for expert in each)
    downs = tuple(build.linear(f"{expert}.down_proj", hidden, inner) for expert in each)
    return (
        ExpertsSpec(routed, (), ups, downs, build.activation),
        _mlp(build, f"{path}.shared_experts", shared),
    )
