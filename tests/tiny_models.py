"""Tiny random models in Hugging Face layout, made by Transformers, which is also their oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # so short prompts already reach scaled positions
}

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}

_MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
_WINDOWS = {"num_hidden_layers": 4, "sliding_window": 24, "layer_types": _MIXED}

_MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
_DEEPSEEK = {
    **_MOE,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.5,
}
_GRANITE = {
    "attention_multiplier": 0.3,
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.7,
}

# What each has of its own; "model_type" where it is not the name.
_OWN: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 3},
    "llama3": {"model_type": "llama", "tie_word_embeddings": True, "rope_parameters": _LLAMA3_ROPE},
    "mistral": {"sliding_window": 24},
    "qwen2": {},
    "qwen2_mixed": {  # full attention, then windows: two KV groups in one pool
        "model_type": "qwen2",
        "num_hidden_layers": 4,
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 2,
    },
    "qwen3": {"head_dim": 32, "tie_word_embeddings": True},
    "ministral": {**_WINDOWS, "head_dim": 32},
    "ministral3": {
        "head_dim": 32,
        "rope_parameters": {**_YARN, "llama_4_scaling_beta": 0.3},
    },
    "smollm3": {"num_hidden_layers": 4, "pad_token_id": 0, "no_rope_layers": [1, 1, 0, 1]},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {
        **_MOE,
        "num_experts": 6,
        "shared_expert_intermediate_size": 96,
        "decoder_sparse_step": 2,
        "num_hidden_layers": 3,
    },
    "qwen3_moe": {
        **_MOE,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
        "head_dim": 32,
        "norm_topk_prob": True,
        "mlp_only_layers": [1],
        "num_hidden_layers": 3,
    },
    "gemma": {"head_dim": 32, "tie_word_embeddings": True, "pad_token_id": 0},
    "gemma2": {
        **_WINDOWS,
        "head_dim": 32,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 5.0,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
    },
    "gemma3": {
        **_WINDOWS,
        "model_type": "gemma3_text",
        "head_dim": 32,
        "query_pre_attn_scalar": 24,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        },
    },
    "phi3": {"pad_token_id": 0},
    "phi4_mini": {
        "model_type": "phi3",
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "original_max_position_embeddings": 512,
        "sliding_window": 24,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5],
            "long_factor": [2.0] * 6,
            "original_max_position_embeddings": 512,
        },
    },
    "olmo": {"pad_token_id": 0},
    "olmo2": {"pad_token_id": 0},
    "olmo3": {**_WINDOWS, "pad_token_id": 0},
    "olmoe": {"num_experts": 6, "num_experts_per_tok": 2, "pad_token_id": 0},
    "granite": _GRANITE,
    "granitemoe": {**_GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "granitemoeshared": {
        **_GRANITE,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 80,
    },
    "cohere": {"logit_scale": 0.4, "tie_word_embeddings": True, "pad_token_id": 0},
    "cohere2": {
        **_WINDOWS,
        "head_dim": 16,
        "logit_scale": 0.4,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
    },
    "glm": {"head_dim": 16, "pad_token_id": 0, "attention_bias": True},
    "glm4": {"head_dim": 32, "pad_token_id": 0},
    "glm4_moe": {
        **_MOE,
        "head_dim": 16,
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "use_qk_norm": True,
        "attention_bias": True,
        "pad_token_id": 0,
    },
    "stablelm": {"pad_token_id": 0, "use_qkv_bias": True},
    "stablelm_parallel": {
        "model_type": "stablelm",
        "pad_token_id": 0,
        "use_parallel_residual": True,
        "qk_layernorm": True,
    },
    "gpt_oss": {
        **_WINDOWS,
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {**_YARN, "truncate": False},
    },
    "deepseek_v2": {
        **_DEEPSEEK,
        "topk_method": "group_limited_greedy",
        "rope_parameters": {**_YARN, "mscale": 0.7, "mscale_all_dim": 0.9},
    },
    "deepseek_v2_lite": {**_DEEPSEEK, "model_type": "deepseek_v2", "q_lora_rank": None},
    "deepseek_v3": {
        **_DEEPSEEK,
        "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    "llama4": {
        "model_type": "llama4_text",
        "num_hidden_layers": 4,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "head_dim": 16,
        "intermediate_size_mlp": 96,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 24,
        "floor_scale": 16,
        "attn_scale": 0.3,
        "pad_token_id": 0,
    },
}

_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16}
_DELTA = {
    "head_dim": 32,
    "num_hidden_layers": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}

# Those with layers that keep a recurrent state.
_HYBRIDS: dict[str, dict[str, Any]] = {
    "mamba": {"state_size": 8, "intermediate_size": 96, "use_bias": True},
    "falcon_mamba": {"state_size": 8, "tie_word_embeddings": True},
    "mamba2": {"state_size": 16, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 16},
    "jamba": {
        "num_hidden_layers": 4,
        "attn_layer_period": 4,
        "attn_layer_offset": 2,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 4,
        "mamba_d_state": 8,
    },
    "bamba": {**_MAMBA2, "num_hidden_layers": 3, "attn_layer_indices": [1]},
    "granitemoehybrid": {
        **_GRANITE,
        **_MAMBA2,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 4,
        "shared_intermediate_size": 80,
    },
    "granitemoehybrid_dense": {  # no experts, and rotary positions
        **_GRANITE,
        **_MAMBA2,
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 0,
        "shared_intermediate_size": 80,
        "position_embedding_type": "rope",
    },
    "falcon_h1": {
        **_MAMBA2,
        "mamba_d_ssm": 128,
        "mamba_conv_bias": False,
        "projectors_bias": True,
        "embedding_multiplier": 3.0,
        "lm_head_multiplier": 0.4,
        "mlp_multipliers": [0.8, 0.6],
        "key_multiplier": 0.7,
        "attention_in_multiplier": 0.9,
        "attention_out_multiplier": 0.8,
        "ssm_in_multiplier": 1.2,
        "ssm_multipliers": [0.7, 1.3, 0.9, 1.1, 0.6],
        "ssm_out_multiplier": 0.5,
    },
    "falcon_h1_normed": {
        **_MAMBA2,
        "model_type": "falcon_h1",
        "mamba_d_ssm": 128,
        "mamba_rms_norm": True,
        "mamba_norm_before_gate": True,
        "time_step_limit": [0.2, 0.5],
    },
    "nemotron_h": {
        "hybrid_override_pattern": "ME*M-E",
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 16,
        "head_dim": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 1.5,
        "moe_intermediate_size": 48,
        "moe_shared_expert_intermediate_size": 80,
    },
    "lfm2": {
        "num_hidden_layers": 3,
        "full_attn_idxs": [1],
        "block_multiple_of": 32,
        "conv_bias": True,
        "tie_word_embeddings": True,
    },
    "lfm2_moe": {
        **_MOE,
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"],
        "num_experts": 6,
        "num_dense_layers": 1,
        "routed_scaling_factor": 1.5,
    },
    "qwen3_next": {
        **_DELTA,
        **_MOE,
        "num_experts": 6,
        "shared_expert_intermediate_size": 96,
        "mlp_only_layers": [1],
    },
    "qwen3_5": {
        **_DELTA,
        "model_type": "qwen3_5_text",
        "attention_bias": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_interleaved": True,
            "mrope_section": [4, 2, 2],
        },
    },
    "qwen3_5_moe": {
        **_DELTA,
        **_MOE,
        "model_type": "qwen3_5_moe_text",
        "num_experts": 6,
        "shared_expert_intermediate_size": 96,
    },
}

FAMILIES = tuple(_OWN)
DENSE = FAMILIES[:6]  # the plain ones, for tests of what all have in common
HYBRIDS = tuple(_HYBRIDS)


def tiny_config(family: str, **overrides: Any) -> Any:
    from transformers import AutoConfig

    own = {**_OWN, **_HYBRIDS}[family]
    return AutoConfig.for_model(**{"model_type": family, **_COMMON, **own, **overrides})


def tiny_model(folder: Path | str, family: str, **overrides: Any) -> Any:
    """Save a random float32 model of `family` in two safetensors shards; give it in eval mode.

    Weights are spread wider than a fresh model's, biases and norms are random too, so that every
    parameter, position and window shows in the logits. Deterministic.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = tiny_config(family, **overrides)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((*FAMILIES, *HYBRIDS).index(family))
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        _randomise(model)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=size * 6 // 10)
    return model


# Mean and spread of what a state lives by: it forgets within some tens of tokens, and shows.
_STATES = {
    "A_log": (-1.5, 0.7),
    "dt_bias": (-1.0, 0.5),
    "dt_proj.bias": (-1.0, 0.5),
    ".D": (1.0, 0.3),
    "conv1d.weight": (0.0, 0.4),
    "conv.weight": (0.0, 0.4),
}


def _randomise(model: Any) -> None:
    import torch

    with torch.no_grad():
        for name, param in model.named_parameters():
            own = next((how for end, how in _STATES.items() if name.endswith(end)), None)
            param.normal_(*(own or (1.0 if "norm" in name else 0.0, 0.15)))
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.normal_(0.0, 0.15)
