"""GGUF metadata in the words of a config.json, so that one family function serves both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from octavo.base.errors import ModelError
from octavo.files.gguf_header import GgufHeader
from octavo.files.model_files import ModelFiles
from octavo.models.config import Config, integer, number

_DIRECT = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
}

# Keys read elsewhere in this file, or of no account.
_READ = (
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "tensor_data_layout",
    "vocab_size",
)

# Keys that change nothing while they have this value.
_NEUTRAL = {
    "attention.causal": True,
    "attention.layer_norm_epsilon": None,
    "attention.sliding_window": 0,
    "expert_count": 0,
    "expert_used_count": 0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    "use_parallel_residual": False,
}


def gguf_config(files: ModelFiles) -> dict[str, Any]:
    """The config of a GGUF file.

    Raises:
        ModelError: a key that may change the mathematics is not known; the message names it.
    """
    header = files.gguf
    architecture = str(header.metadata.get("general.architecture"))
    own = _own_keys(header, architecture)
    config = {name: own[key] for key, name in _DIRECT.items() if key in own}
    config["model_type"] = architecture
    config["num_key_value_heads"] = _kv_heads(own)
    config["vocab_size"] = _vocab_size(header)
    config["rope_parameters"] = _rope(own, files)
    config["sliding_window"] = None
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    config["attention_bias"] = "blk.0.attn_q.bias" in header.tensors
    config["mlp_bias"] = "blk.0.ffn_gate.bias" in header.tensors
    config |= _special_tokens(header)
    _check_heads(config, own)
    return config


def _own_keys(header: GgufHeader, architecture: str) -> dict[str, Any]:
    """The keys of the architecture, without its name in front; all of them known."""
    prefix = architecture + "."
    own = {k.removeprefix(prefix): v for k, v in header.metadata.items() if k.startswith(prefix)}
    for key, found in own.items():
        neutral = key in _NEUTRAL and _NEUTRAL[key] in (None, found)
        if not neutral and key not in _DIRECT and key not in _READ:
            raise ModelError(f"GGUF metadata {prefix}{key}={found!r} is not supported")
    return own


def _kv_heads(own: Config) -> Any:
    """One number; some files repeat it for every layer."""
    found = own.get("attention.head_count_kv")
    if not isinstance(found, np.ndarray):
        return found
    if len(set(found.tolist())) != 1:
        raise ModelError("GGUF metadata attention.head_count_kv differs by layer: not supported")
    return int(found[0])


def _vocab_size(header: GgufHeader) -> int:
    """Rows of the embedding, which may be padded beyond the tokenizer's vocabulary."""
    if "token_embd.weight" not in header.tensors:
        raise ModelError("GGUF tensor token_embd.weight is missing")
    return header.tensors["token_embd.weight"].shape[0]


def _rope(own: Config, files: ModelFiles) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": number(own, "rope.freq_base", default=10000.0)}
    kind = own.get("rope.scaling.type", "linear" if "rope.scale_linear" in own else "none")
    rope["rope_type"] = "default" if kind == "none" else kind
    if kind != "none":
        rope["factor"] = number(own, "rope.scaling.factor", "rope.scale_linear")
    attention = own.get("rope.scaling.attn_factor", own.get("rope.scaling.yarn_attn_factor", 1.0))
    if kind == "yarn":
        rope |= _yarn(own, rope["factor"], attention)
    elif attention != 1.0:
        raise ModelError(f"GGUF metadata rope.scaling.attn_factor={attention} needs type yarn")
    if "rope_freqs.weight" in files.gguf.tensors:
        rope["freq_factors"] = _read_floats(files, "rope_freqs.weight")
    return rope


def _yarn(own: Config, factor: float, attention: float) -> dict[str, Any]:
    """GGUF's attention factor multiplies YaRN's own; Transformers' replaces it."""
    names = {
        "original_context_length": "original_max_position_embeddings",
        "yarn_beta_fast": "beta_fast",
        "yarn_beta_slow": "beta_slow",
    }
    found = {new: own.get(f"rope.scaling.{old}") for old, new in names.items()}
    if attention != 1.0:
        found["attention_factor"] = attention * (0.1 * math.log(max(factor, 1.0)) + 1.0)
    return found


def _read_floats(files: ModelFiles, name: str) -> list[float]:
    tensor = files.gguf.tensors[name]
    if tensor.type.name != "F32":
        raise ModelError(f"{files.path}: {name} must be F32, got {tensor.type.name}")
    count = math.prod(tensor.shape)
    floats: list[float] = np.fromfile(files.path, "<f4", count, offset=tensor.offset).tolist()
    return floats


def _special_tokens(header: GgufHeader) -> dict[str, Any]:
    """End of text and, where a chat model has one, end of turn."""
    found = [header.metadata.get(f"tokenizer.ggml.{x}_token_id") for x in ("eos", "eot")]
    return {
        "eos_token_id": list(dict.fromkeys(token for token in found if token is not None)),
        "bos_token_id": header.metadata.get("tokenizer.ggml.bos_token_id"),
    }


def _check_heads(config: dict[str, Any], own: Config) -> None:
    """Rotary positions over the whole head, K and V of one width: what the families here have."""
    default = integer(config, "hidden_size") // integer(config, "num_attention_heads")
    head_dim = config.setdefault("head_dim", default)
    for key in ("attention.value_length", "rope.dimension_count"):
        if own.get(key, head_dim) != head_dim:
            raise ModelError(f"GGUF metadata {key}={own[key]} differs from the heads' {head_dim}")
