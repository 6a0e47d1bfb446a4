"""Mixtral: Mistral with experts."""

from __future__ import annotations

from octavo.models.build import Build, Traits
from octavo.models.config import Config, integer
from octavo.models.decoder import decoder
from octavo.models.experts import own_experts, router
from octavo.models.spec import ExpertsSpec, ModelSpec


def mixtral(config: Config, kv_dtype: str) -> ModelSpec:
    traits = Traits(feeds=_experts, understood=("num_local_experts",))
    return decoder("mixtral", config, kv_dtype, traits)


def _experts(build: Build, layer: int) -> tuple[ExpertsSpec]:
    path, count = build.path(layer, "block_sparse_moe"), integer(build.config, "num_local_experts")
    routed = router(build, f"{path}.gate", count)
    names = ("w1", "w3", "w2")
    return (own_experts(build, f"{path}.experts", count, build.inner, routed, names),)
