"""GGUF's architectures with layers that keep a state, as data: see gguf_architectures."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from octavo.base.errors import ModelError
from octavo.models.config import count, integer
from octavo.models.gguf_architecture import (
    EXPERTS,
    EXPERTS_USED,
    GRANITE,
    LOCAL_EXPERTS,
    ROUTED_EXPERTS,
    SHARED_EXPERT,
    SIGMOID,
    Architecture,
    Own,
)

Names = Collection[str]


def _layers(own: Own, state: str) -> list[str]:
    """Layers without KV heads keep a state."""
    found = own.get("attention.head_count_kv")
    if not isinstance(found, np.ndarray):
        raise ModelError("GGUF metadata attention.head_count_kv must be given for each layer")
    return ["full_attention" if heads else state for heads in found.tolist()]


def _heads_of_states(own: Own) -> tuple[int, int]:
    """Their number and their size (Mamba-2)."""
    heads = integer(own, "ssm.time_step_rank")
    return heads, integer(own, "ssm.inner_size") // heads


def _any(tensors: Names, end: str) -> bool:
    return any(name.endswith(end) for name in tensors)


def _mamba(own: Own, tensors: Names) -> dict[str, Any]:
    return {
        "model_type": "falcon_mamba" if own.get("ssm.dt_b_c_rms") else "mamba",
        "use_bias": _any(tensors, ".ssm_in.bias"),
        "use_conv_bias": _any(tensors, ".ssm_conv1d.bias"),
    }


def _mamba2(own: Own, tensors: Names) -> dict[str, Any]:
    heads, size = _heads_of_states(own)
    biases = {"use_bias": ".ssm_in.bias", "use_conv_bias": ".ssm_conv1d.bias"}
    found = {name: _any(tensors, end) for name, end in biases.items()}
    return {"num_heads": heads, "head_dim": size} | found


def _within_mamba(own: Own, tensors: Names) -> dict[str, Any]:
    biases = {"mamba_proj_bias": ".ssm_in.bias", "mamba_conv_bias": ".ssm_conv1d.bias"}
    return {name: _any(tensors, end) for name, end in biases.items()}


def _jamba(own: Own, tensors: Names) -> dict[str, Any]:
    """Which layers have experts, only their tensors say."""
    layers = integer(own, "block_count")
    sparse = [n for n in range(layers) if f"blk.{n}.ffn_gate_inp.weight" in tensors]
    first, second = (*sparse, layers, layers)[:2]
    period = max(1, second - first)
    if sparse and sparse != list(range(first, layers, period)):
        raise ModelError(f"GGUF: layers {sparse} with experts are not every so many-th")
    return _within_mamba(own, tensors) | {
        "layer_types": _layers(own, "mamba"),
        "mamba_expand": integer(own, "ssm.inner_size") // integer(own, "embedding_length"),
        "num_experts": count(own, "expert_count") if sparse else 1,
        "expert_layer_offset": first,
        "expert_layer_period": max(period, first + 1),
    }


def _granitehybrid(own: Own, tensors: Names) -> dict[str, Any]:
    heads, size = _heads_of_states(own)
    inner = own.get("expert_shared_feed_forward_length") or own.get("feed_forward_length")
    return _within_mamba(own, tensors) | {
        "layer_types": _layers(own, "mamba"),
        "mamba_n_heads": heads,
        "mamba_d_head": size,
        "num_local_experts": count(own, "expert_count"),
        "position_embedding_type": "rope" if own.get("rope.scaling.finetuned") else "nope",
        "shared_intermediate_size": inner,
    }


def _falcon_h1(own: Own, tensors: Names) -> dict[str, Any]:
    """All multipliers are part of the weights."""
    heads, size = _heads_of_states(own)
    return _within_mamba(own, tensors) | {
        "mamba_n_heads": heads,
        "mamba_d_head": size,
        "mamba_rms_norm": _any(tensors, ".ssm_norm.weight"),
        "projectors_bias": _any(tensors, ".ssm_out.bias"),
    }


def _nemotron_h(own: Own, tensors: Names) -> dict[str, Any]:
    """Layers that neither attend nor feed forward keep a state. Files may say how much of a head
    would turn, if any did."""
    heads, size = _heads_of_states(own)
    found = own.get("feed_forward_length")
    if not isinstance(found, np.ndarray):
        raise ModelError("GGUF metadata feed_forward_length must be given for each layer")
    layers = integer(own, "block_count") - count(own, "nextn_predict_layers")
    inner, feed = found.tolist()[:layers], "moe" if own.get("expert_count") else "mlp"
    mixers = _layers(own, "mamba")[:layers]
    return {
        "layer_types": [
            feed if size else mixer for size, mixer in zip(inner, mixers, strict=False)
        ],
        "intermediate_size": max(inner, default=0),
        "mamba_num_heads": heads,
        "mamba_head_dim": size,
        "mlp_bias": _any(tensors, ".ffn_up.bias"),
        "partial_rotary_factor": None,
        "use_bias": _any(tensors, ".ssm_in.bias"),
        "use_conv_bias": _any(tensors, ".ssm_conv1d.bias"),
    }


def _qwen3next(own: Own, tensors: Names) -> dict[str, Any]:
    """Older files have queries, keys, values and their gates in one tensor, by key head."""
    return {
        "linear_value_head_dim": _heads_of_states(own)[1],
        "tensors_apart": _any(tensors, ".attn_gate.weight"),
    }


def _lfm2(own: Own, tensors: Names) -> dict[str, Any]:
    return {
        "layer_types": _layers(own, "conv"),
        "conv_bias": _any(tensors, ".shortconv.in_proj.bias"),
        "use_expert_bias": _any(tensors, ".exp_probs_b.bias"),
    }


_MAMBA = {
    "ssm.conv_kernel": "conv_kernel",
    "ssm.group_count": "n_groups",
    "ssm.inner_size": "intermediate_size",
    "ssm.state_size": "state_size",
}
_WITHIN = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.group_count": "mamba_n_groups",
    "ssm.state_size": "mamba_d_state",
}
_READ = ("ssm.inner_size", "ssm.time_step_rank")
_NORM = {"attention.layer_norm_rms_epsilon": "layer_norm_epsilon"}
_LFM2 = {"attention.layer_norm_rms_epsilon": "norm_eps", "shortconv.l_cache": "conv_L_cache"}
_NEMOTRON_H = {
    **_NORM,
    "ssm.conv_kernel": "conv_kernel",
    "ssm.group_count": "n_groups",
    "ssm.state_size": "ssm_state_size",
}

STATE_ARCHITECTURES = {
    "falcon-h1": Architecture(
        "falcon_h1",
        {**_WITHIN, "ssm.inner_size": "mamba_d_ssm"},
        {"mamba_norm_before_gate": False},
        _falcon_h1,
        read=_READ,
    ),
    "granitehybrid": Architecture(
        "granitemoehybrid",
        {**GRANITE, **LOCAL_EXPERTS, **_WITHIN},
        {"tensors_apart": True},
        _granitehybrid,
        read=(*_READ, "expert_shared_feed_forward_length"),
    ),
    "jamba": Architecture(
        "jamba",
        {**EXPERTS_USED, **_WITHIN, "ssm.time_step_rank": "mamba_dt_rank"},
        derive=_jamba,
        read=(*_READ, "expert_count"),
    ),
    "lfm2": Architecture(
        "lfm2",
        _LFM2,
        {"block_auto_adjust_ff_dim": False},
        _lfm2,
    ),
    "lfm2moe": Architecture(
        "lfm2_moe",
        {
            **_LFM2,
            **EXPERTS,
            "leading_dense_block_count": "num_dense_layers",
        },
        derive=_lfm2,
        accepts={"expert_gating_func": (0, SIGMOID)},
    ),
    "mamba": Architecture(
        "mamba",
        {**_NORM, **_MAMBA, "ssm.time_step_rank": "time_step_rank"},
        derive=_mamba,
        read=("ssm.dt_b_c_rms",),
        attends=False,
    ),
    "mamba2": Architecture(
        "mamba2", {**_NORM, **_MAMBA}, derive=_mamba2, read=_READ, attends=False
    ),
    "nemotron_h": Architecture(
        "nemotron_h", _NEMOTRON_H, derive=_nemotron_h, read=_READ, partial=True
    ),
    "nemotron_h_moe": Architecture(
        "nemotron_h",
        {
            **_NEMOTRON_H,
            **ROUTED_EXPERTS,
            "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
        },
        derive=_nemotron_h,
        accepts={"expert_gating_func": (0, SIGMOID)},
        read=_READ,
        partial=True,
    ),
    "qwen3next": Architecture(
        "qwen3_next",
        {
            **SHARED_EXPERT,
            "full_attention_interval": "full_attention_interval",
            "ssm.conv_kernel": "linear_conv_kernel_dim",
            "ssm.group_count": "linear_num_key_heads",
            "ssm.state_size": "linear_key_head_dim",
            "ssm.time_step_rank": "linear_num_value_heads",
        },
        {"norm_topk_prob": True, "norms_count_from_zero": True},
        _qwen3next,
        read=("ssm.inner_size",),
        partial=True,
    ),
}
