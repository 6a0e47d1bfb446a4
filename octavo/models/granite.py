"""Granite, dense and with experts: everything has a multiplier."""

from __future__ import annotations

from typing import Any

from octavo.models.build import Build, Traits, biased
from octavo.models.config import Config, flag, integer, number
from octavo.models.decoder import decoder
from octavo.models.experts import joined_experts, own_experts, router
from octavo.models.spec import MlpSpec, ModelSpec, OpSpec

MULTIPLIERS = (
    "attention_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "residual_multiplier",
)


def granite(config: Config, kv_dtype: str) -> ModelSpec:
    return decoder("granite", config, kv_dtype, traits(config))


def granitemoe(config: Config, kv_dtype: str) -> ModelSpec:
    made = traits(config, feeds=experts_of, understood=(*MULTIPLIERS, "num_local_experts"))
    return decoder("granitemoe", config, kv_dtype, made)


def traits(config: Config, **more: Any) -> Traits:
    plain = {
        "mlp_bias": flag(config, "mlp_bias"),
        "attention_scale": number(config, "attention_multiplier", default=1.0),
        "embedding_scale": number(config, "embedding_multiplier", default=1.0),
        "residual_scale": number(config, "residual_multiplier", default=1.0),
        "head_scale": 1 / number(config, "logits_scaling", default=1.0),
        "understood": MULTIPLIERS,
    }
    return biased(config, **{**plain, **more})


def experts_of(build: Build, layer: int) -> tuple[OpSpec, ...]:
    """Experts in joined tensors, which GGUF files have apart, and an MLP for all tokens where there
    is one."""
    config, path = build.config, build.path(layer, "block_sparse_moe")
    count, inner = integer(config, "num_local_experts"), build.inner
    routed = router(build, f"{path}.router.layer", count, scoring="softmax_of_top", normalise=False)
    if flag(config, "tensors_apart"):
        experts = own_experts(build, f"{path}.experts", count, inner, routed)
    else:
        tensors = f"{path}.input_linear.weight", f"{path}.output_linear.weight"
        experts = joined_experts(build, path, count, routed, tensors)
    if not config.get("shared_intermediate_size"):
        return (experts,)
    return experts, shared_mlp(build, layer)


def shared_mlp(build: Build, layer: int) -> MlpSpec:
    inner, path = integer(build.config, "shared_intermediate_size"), build.path(layer, "shared_mlp")
    if flag(build.config, "tensors_apart"):
        return build.mlp(path, inner)
    whole = (2 * inner, build.hidden)
    gate, up = (
        build.cut(f"{path}.{name}", f"{path}.input_linear", whole, start, inner)
        for name, start in (("gate", 0), ("up", inner))
    )
    scale = build.traits.residual_scale
    down = build.linear(f"{path}.output_linear", build.hidden, inner, scale=scale)
    return MlpSpec(gate, up, down, build.activation)
