"""gpt-oss: sinks in each softmax, every other layer a window, experts with biases."""

from __future__ import annotations

from dataclasses import replace

from octavo.base.errors import ModelError
from octavo.models.config import Config, flag, integer, number
from octavo.models.decoder import Build, Traits, decoder
from octavo.models.experts import joined, own_experts, router
from octavo.models.quantization import is_mxfp4
from octavo.models.spec import (
    SWIGLU_ALPHA,
    SWIGLU_LIMIT,
    AttentionSpec,
    ExpertsSpec,
    LinearSpec,
    ModelSpec,
    ParamSpec,
)

_SWIGLU = {"swiglu_alpha": SWIGLU_ALPHA, "swiglu_limit": SWIGLU_LIMIT}


def gpt_oss(config: Config, kv_dtype: str) -> ModelSpec:
    for name, known in _SWIGLU.items():
        if number(config, name, default=known) != known:
            raise ModelError(f"config: {name}={config[name]!r} is not supported")
    bias = flag(config, "attention_bias", True)
    traits = Traits(
        qkv_bias=bias,
        o_bias=bias,
        mixers=_attention,
        feeds=_experts,
        understood=("num_local_experts", "quantization_config"),
    )
    return decoder("gpt_oss", config, kv_dtype, traits)


def _attention(build: Build, layer: int) -> tuple[AttentionSpec]:
    sinks = ParamSpec(f"{build.path(layer, build.names.mixer)}.sinks", (build.heads,))
    return (replace(build.attention(layer), sinks=sinks),)


def _experts(build: Build, layer: int) -> tuple[ExpertsSpec]:
    """Gates and ups lie in turn. In files of floats one tensor has the matrices of all experts,
    turned around; in those of MXFP4 they are apart and not turned. GGUF files have each expert's
    linears."""
    path, inner, hidden = build.path(layer, build.names.feed), build.inner, build.hidden
    count = integer(build.config, "num_local_experts")
    routed = router(
        build, f"{path}.router", count, bias_too=True, scoring="softmax_of_top", normalise=False
    )
    if flag(build.config, "tensors_apart"):
        experts = own_experts(build, f"{path}.experts", count, inner, routed, bias=True)
        return (replace(experts, activation="swiglu_oai"),)
    in_blocks = is_mxfp4(build.config)

    def linear(expert: int, name: str, rows: slice = slice(None)) -> LinearSpec:
        tensor = "down_proj" if name == "down" else "gate_up_proj"
        shape = (hidden, inner) if name == "down" else (2 * inner, hidden)
        made = joined(
            f"{path}.experts.{expert}.{name}",
            f"{path}.experts.{tensor}",
            (count, *shape[::-1]),
            expert,
            rows,
            turned=True,
            bias=f"{path}.experts.{tensor}_bias",
        )
        if not in_blocks:
            return made
        assert made.weight.part is not None
        part = replace(
            made.weight.part,
            tensor=f"{path}.experts.{expert}.{tensor}",
            shape=shape,
            index=None,
            turned=None,
        )
        return replace(made, weight=replace(made.weight, part=part))

    each = range(count)
    return (
        ExpertsSpec(
            routed,
            tuple(linear(e, "gate", slice(0, None, 2)) for e in each),
            tuple(linear(e, "up", slice(1, None, 2)) for e in each),
            tuple(linear(e, "down") for e in each),
            "swiglu_oai",
        ),
    )
