"""GGUF's architectures as data: which family each is, and how its metadata are said there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

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
    Derive,
    Own,
)
from octavo.models.gguf_states import STATE_ARCHITECTURES

_LAYER_NORM = {"attention.layer_norm_epsilon": "layer_norm_eps"}
_CAPS = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}

# Files have the one that Gemma's norms add to their weights added.
_GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "norms_count_from_zero": True}

# What files of Hugging Face have in one tensor, such as gate and up, lies apart.
_APART = {"tensors_apart": True}


def _llama(own: Own, tensors: Collection[str]) -> dict[str, Any]:
    return {"model_type": "mixtral"} if own.get("expert_count") else {}


def _gemma(largest: int) -> Derive:
    """The scale of scores, by the number of layers of the largest model, whose is another."""

    def derive(own: Own, tensors: Collection[str]) -> dict[str, Any]:
        scalar = own.get("attention.key_length")
        if own.get("block_count") == largest:
            scalar = integer(own, "embedding_length") // integer(own, "attention.head_count")
        return {"query_pre_attn_scalar": scalar}

    return derive


def _olmo2(own: Own, tensors: Collection[str]) -> dict[str, Any]:
    return {"model_type": "olmo3"} if own.get("attention.sliding_window") else {}


def _deepseek2(own: Own, tensors: Collection[str]) -> dict[str, Any]:
    """Newer files count the one head that is kept, and say a head's sizes under keys of their own;
    they have keys and values of kv_b apart. Metadata of V2 and V3 differ by the router."""
    key, value = (
        integer(own, f"attention.{name}_length_mla", f"attention.{name}_length")
        for name in ("key", "value")
    )
    rotary, groups = integer(own, "rope.dimension_count"), count(own, "expert_group_count")
    version3 = own.get("expert_gating_func") == SIGMOID
    if own.get("expert_weights_norm") and not version3:
        raise ModelError("GGUF metadata deepseek2.expert_weights_norm: not supported with softmax")
    return {
        "model_type": "deepseek_v3" if version3 else "deepseek_v2",
        "num_key_value_heads": integer(own, "attention.head_count"),
        "head_dim": None,
        "q_lora_rank": own.get("attention.q_lora_rank"),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": key - rotary,
        "v_head_dim": value,
        "norm_topk_prob": own.get("expert_weights_norm", False),
        "topk_method": "group_limited_greedy" if groups > 1 else "greedy",
        "tensors_apart": "blk.0.attn_k_b.weight" in tensors,
        "attention_bias": "blk.0.attn_kv_a_mqa.bias" in tensors,
    }


def _llama4(own: Own, tensors: Collection[str]) -> dict[str, Any]:
    """Only the model of 128 experts has no norms over q and k."""
    return {"use_qk_norm": own.get("expert_count") != 128}


def _qk_norm(own: Own, tensors: Collection[str]) -> dict[str, Any]:
    return {"use_qk_norm": "blk.0.attn_q_norm.weight" in tensors}


def _stablelm(own: Own, tensors: Collection[str]) -> dict[str, Any]:
    return {
        "qk_layernorm": "blk.0.attn_q_norm.weight" in tensors,
        "use_qkv_bias": "blk.0.attn_q.bias" in tensors,
    }


def _qwen2_moe(own: Own, tensors: Collection[str]) -> dict[str, Any]:
    return {"qkv_bias": "blk.0.attn_q.bias" in tensors}


ARCHITECTURES = STATE_ARCHITECTURES | {
    "chatglm": Architecture("glm", partial=True),
    "cohere2": Architecture(
        "cohere2",
        {**_LAYER_NORM, "logit_scale": "logit_scale"},
        window="sliding_attention",
        every=4,
    ),
    "command-r": Architecture(
        "cohere", {**_LAYER_NORM, "logit_scale": "logit_scale"}, derive=_qk_norm
    ),
    "deepseek2": Architecture(
        "deepseek_v2",
        {
            **ROUTED_EXPERTS,
            "attention.kv_lora_rank": "kv_lora_rank",
        },
        derive=_deepseek2,
        also=("deepseek_v3",),
        read=(
            "attention.key_length_mla",
            "attention.q_lora_rank",
            "attention.value_length_mla",
            "expert_gating_func",
            "rope.scaling.yarn_log_multiplier",
        ),
    ),
    "gemma": Architecture("gemma", always=_GEMMA),
    "gemma2": Architecture(
        "gemma2", _CAPS, _GEMMA, _gemma(46), window="sliding_attention", every=2
    ),
    "gemma3": Architecture(
        "gemma3_text",
        _CAPS,
        _GEMMA,
        _gemma(62),
        window="sliding_attention",
        every=6,
        plain_in_windows=True,
    ),
    "glm4": Architecture("glm4", partial=True),
    "glm4moe": Architecture(
        "glm4_moe",
        ROUTED_EXPERTS,
        derive=_qk_norm,
        accepts={"expert_gating_func": (0, SIGMOID)},
        partial=True,
    ),
    "gpt-oss": Architecture(
        "gpt_oss",
        {**LOCAL_EXPERTS, "expert_feed_forward_length": "intermediate_size"},
        _APART,
        window="sliding_attention",
        every=2,
    ),
    "granite": Architecture("granite", GRANITE),
    "granitemoe": Architecture(
        "granitemoe",
        {
            **GRANITE,
            **LOCAL_EXPERTS,
            "expert_shared_feed_forward_length": "shared_intermediate_size",
        },
        _APART,
    ),
    "llama": Architecture("llama", LOCAL_EXPERTS, derive=_llama, also=("mistral", "mixtral")),
    "llama4": Architecture(
        "llama4_text",
        {
            **LOCAL_EXPERTS,
            "expert_feed_forward_length": "intermediate_size",
            "feed_forward_length": "intermediate_size_mlp",
            "interleave_moe_layer_step": "interleave_moe_layer_step",
        },
        {**_APART, "attention_chunk_size": 8192},
        _llama4,
        window="chunked_attention",
        every=4,
    ),
    "mistral3": Architecture(
        "ministral3", read=("attention.temperature_scale", "rope.scaling.yarn_log_multiplier")
    ),
    "olmo": Architecture("olmo", {"attention.clamp_kqv": "clip_qkv"}),
    "olmo2": Architecture(
        "olmo2", derive=_olmo2, window="sliding_attention", every=4, plain_in_windows=True
    ),
    "olmoe": Architecture("olmoe", {**EXPERTS_USED, "expert_count": "num_experts"}),
    "phi3": Architecture("phi3", window="sliding_attention", partial=True),
    "qwen2": Architecture("qwen2"),
    "qwen2moe": Architecture(
        "qwen2_moe",
        SHARED_EXPERT,
        derive=_qwen2_moe,
    ),
    "qwen3": Architecture("qwen3"),
    "qwen3moe": Architecture("qwen3_moe", EXPERTS, {"norm_topk_prob": True}),
    "smollm3": Architecture("smollm3"),
    "stablelm": Architecture(
        "stablelm",
        {**_LAYER_NORM, "use_parallel_residual": "use_parallel_residual"},
        derive=_stablelm,
        partial=True,
    ),
}
