"""gpt-oss: sinks in each softmax, every other layer a window, experts with biases."""

from __future__ import annotations

from dataclasses import replace

from octavo.base.errors import ModelError
from octavo.models.build import Build, biased
from octavo.models.config import Config, flag, integer, number
from octavo.models.decoder import decoder
from octavo.models.experts import joined_experts, own_experts, router
from octavo.models.quantization import is_mxfp4
from octavo.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LinearSpec,
    ModelSpec,
    ParamSpec,
)

_LIMIT, _SHIFT = 7.0, 1.0  # of what is gated, by Transformers' code for all files
_SWIGLU = {"swiglu_alpha": 1.702, "swiglu_limit": _LIMIT}  # alpha is in "quick_gelu"


def gpt_oss(config: Config, kv_dtype: str) -> ModelSpec:
    for name, known in _SWIGLU.items():
        if number(config, name, default=known) != known:
            raise ModelError(f"config: {name}={config[name]!r} is not supported")
    traits = biased(
        config,
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
    path = build.path(layer, build.names.feed)
    count = integer(build.config, "num_local_experts")
    routed = router(
        build, f"{path}.router", count, bias_too=True, scoring="softmax_of_top", normalise=False
    )
    path = f"{path}.experts"
    if flag(build.config, "tensors_apart"):
        experts = own_experts(build, path, count, build.inner, routed, bias=True)
    else:
        tensors = f"{path}.gate_up_proj", f"{path}.down_proj"
        experts = joined_experts(
            build, path, count, routed, tensors, turned=True, interleaved=True, biased=True
        )
    if is_mxfp4(build.config):
        gates, ups, downs = (
            tuple(map(_apart, linears)) for linears in (experts.gates, experts.ups, experts.downs)
        )
        experts = replace(experts, gates=gates, ups=ups, downs=downs)
    return (replace(experts, activation="quick_gelu", limit=_LIMIT, shift=_SHIFT),)


def _apart(linear: LinearSpec) -> LinearSpec:
    """The same rows of a tensor that is the expert's own, and not turned."""
    part = linear.weight.part
    assert part is not None
    parent, _, last = part.tensor.rpartition(".")
    _, inputs, outputs = part.shape
    own = replace(
        part,
        tensor=f"{parent}.{part.index}.{last}",
        shape=(outputs, inputs),
        index=None,
        turned=None,
    )
    return replace(linear, weight=replace(linear.weight, part=own))
