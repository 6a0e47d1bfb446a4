"""Tiny random models in Hugging Face layout, made by Transformers, which is also their oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FAMILIES = ("llama", "llama3", "mistral", "qwen2", "qwen2_mixed", "qwen3")

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

_OWN: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 3},
    "llama3": {"tie_word_embeddings": True, "rope_parameters": _LLAMA3_ROPE},
    "mistral": {"sliding_window": 24},
    "qwen2": {},
    "qwen2_mixed": {  # full attention, then windows: two KV groups in one pool
        "num_hidden_layers": 4,
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 2,
    },
    "qwen3": {"head_dim": 32, "tie_word_embeddings": True},
}


def tiny_model(folder: Path | str, family: str, **overrides: Any) -> Any:
    """Save a random float32 model of `family` in two safetensors shards; give it in eval mode.

    Weights are spread wider than a fresh model's, biases and norms are random too, so that every
    parameter, position and window shows in the logits. Deterministic.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model_type = {"llama3": "llama", "qwen2_mixed": "qwen2"}.get(family, family)
    config = AutoConfig.for_model(model_type, **{**_COMMON, **_OWN[family], **overrides})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(FAMILIES.index(family))
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        _randomise(model)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=size * 6 // 10)
    return model


def _randomise(model: Any) -> None:
    import torch

    with torch.no_grad():
        for name, param in model.named_parameters():
            centre = 1.0 if "norm" in name else 0.0
            param.normal_(centre, 0.15)
