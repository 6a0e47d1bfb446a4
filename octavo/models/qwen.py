"""Qwen2 (2.5 too) and Qwen3, dense and with experts. Windows by layer come with the KV groups."""

from __future__ import annotations

from dataclasses import replace

from octavo.models.build import Build, Traits, biased
from octavo.models.config import Config, flag, integer
from octavo.models.decoder import decoder
from octavo.models.experts import is_sparse, normalises, own_experts, router
from octavo.models.spec import MlpSpec, ModelSpec, OpSpec

EXPERTS = ("num_experts", "num_local_experts")  # the name of their number


def qwen2(config: Config, kv_dtype: str) -> ModelSpec:
    """Biases on q, k and v only."""
    return decoder("qwen2", config, kv_dtype, Traits(qkv_bias=True))


def qwen3(config: Config, kv_dtype: str) -> ModelSpec:
    """Norms over each head of q and k; heads of their own size."""
    return decoder("qwen3", config, kv_dtype, biased(config, qk_norm="head"))


def qwen2_moe(config: Config, kv_dtype: str) -> ModelSpec:
    """Beside the experts an MLP for all tokens, with a gate of its own."""
    traits = Traits(qkv_bias=flag(config, "qkv_bias", True), feeds=feeds, understood=EXPERTS)
    return decoder("qwen2_moe", config, kv_dtype, traits)


def qwen3_moe(config: Config, kv_dtype: str) -> ModelSpec:
    traits = biased(config, qk_norm="head", feeds=feeds, understood=EXPERTS)
    return decoder("qwen3_moe", config, kv_dtype, traits)


def feeds(build: Build, layer: int) -> tuple[OpSpec, ...]:
    """An MLP, or experts and what is shared by all tokens."""
    config, path = build.config, build.path(layer, build.names.feed)
    if not is_sparse(config, layer):
        return (build.mlp(path),)
    count = integer(config, *EXPERTS)
    routed = router(build, f"{path}.gate", count, normalise=normalises(config))
    inner = integer(config, "moe_intermediate_size")
    experts = own_experts(build, f"{path}.experts", count, inner, routed)
    if config.get("shared_expert_intermediate_size") in (None, 0):
        return (experts,)
    return experts, _shared(build, path)


def _shared(build: Build, path: str) -> MlpSpec:
    inner = integer(build.config, "shared_expert_intermediate_size")
    gate = build.linear(f"{path}.shared_expert_gate", 1, build.hidden)
    return replace(build.mlp(f"{path}.shared_expert", inner), gate_all=gate)
