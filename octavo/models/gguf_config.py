"""GGUF metadata in the words of a config.json, so that one family function serves both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from octavo.base.errors import ModelError
from octavo.files.gguf_header import GgufHeader
from octavo.files.model_files import ModelFiles
from octavo.models.config import count, integer
from octavo.models.gguf_architecture import SOFTMAX, Architecture, Own
from octavo.models.gguf_architectures import ARCHITECTURES
from octavo.models.gguf_rope import gguf_rope

_DIRECT = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
}

# Keys read elsewhere, or of no account.
_READ = {
    "attention.head_count_kv",
    "attention.value_length",
    "block_count",
    "nextn_predict_layers",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "tensor_data_layout",
    "vocab_size",
}

_READ_WITH_WINDOWS = {"attention.sliding_window", "attention.sliding_window_pattern"}

# Keys that change nothing while they have one of these values.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "expert_count": (0,),
    "expert_gating_func": (0, SOFTMAX),
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_shared_count": (0,),
    "expert_used_count": (0,),
    "expert_weights_scale": (0.0, 1.0),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "use_parallel_residual": (False,),
}
_IGNORED = {"attention.layer_norm_epsilon"}  # of norms that the architecture has none of


def gguf_config(files: ModelFiles) -> dict[str, Any]:
    """The config of a GGUF file.

    Raises:
        ModelError: the architecture is unknown, or a key that may change the mathematics; the
            message names it.
    """
    header = files.gguf
    name = str(header.metadata.get("general.architecture"))
    if name not in ARCHITECTURES:
        raise ModelError(
            f"unknown architecture {name!r} of GGUF; known: {', '.join(sorted(ARCHITECTURES))}"
        )
    architecture = ARCHITECTURES[name]
    own = _own_keys(header, name, architecture)
    names = {**_DIRECT, **architecture.keys}
    config: dict[str, Any] = {new: own[key] for key, new in names.items() if key in own}
    config["model_type"] = architecture.model_type
    config["num_hidden_layers"] = layers_of(header)
    config["num_key_value_heads"] = _kv_heads(own)
    config["vocab_size"] = _vocab_size(header)
    config["rope_parameters"] = gguf_rope(architecture, own, files)
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    biases = (".attn_q.bias", ".attn_qkv.bias")
    config["attention_bias"] = any(tensor.endswith(biases) for tensor in header.tensors)
    config["mlp_bias"] = "blk.0.ffn_gate.bias" in header.tensors
    config |= _special_tokens(header)
    config |= _windows(architecture, own, config["num_hidden_layers"])
    if architecture.attends and name != "deepseek2":
        config |= _heads(architecture, own)
    derived = architecture.derive(own, header.tensors) if architecture.derive else {}
    return {**config, **architecture.always, **derived}


def layers_of(header: GgufHeader) -> int:
    """Layers that generate; those behind them predict further tokens, and are not used.

    Raises:
        ModelError: there are none.
    """
    prefix = str(header.metadata.get("general.architecture")) + "."
    layers = integer(header.metadata, prefix + "block_count")
    return layers - count(header.metadata, prefix + "nextn_predict_layers")


def _own_keys(header: GgufHeader, name: str, architecture: Architecture) -> dict[str, Any]:
    """The keys of the architecture, without its name in front; all of them known."""
    prefix = name + "."
    own = {k.removeprefix(prefix): v for k, v in header.metadata.items() if k.startswith(prefix)}
    read = {*_DIRECT, *_READ, *_IGNORED, *architecture.keys, *architecture.read}
    if architecture.window:
        read |= _READ_WITH_WINDOWS
    if architecture.plain_in_windows:
        read.add("rope.freq_base_swa")
    neutral = {**_NEUTRAL, **architecture.accepts}
    for key, found in own.items():
        if key not in read and (isinstance(found, np.ndarray) or found not in neutral.get(key, ())):
            raise ModelError(f"GGUF metadata {prefix}{key}={found!r} is not supported")
    return own


def _kv_heads(own: Own) -> Any:
    """One number; some files repeat it for every layer, or say 0 where a layer does not attend."""
    found = own.get("attention.head_count_kv")
    if not isinstance(found, np.ndarray):
        return found
    numbers = set(found.tolist()) - {0}
    if len(numbers) != 1:
        raise ModelError("GGUF metadata attention.head_count_kv differs by layer: not supported")
    return numbers.pop()


def _vocab_size(header: GgufHeader) -> int:
    """Rows of the embedding, which may be padded beyond the tokenizer's vocabulary."""
    if "token_embd.weight" not in header.tensors:
        raise ModelError("GGUF tensor token_embd.weight is missing")
    return header.tensors["token_embd.weight"].shape[0]


def _windows(architecture: Architecture, own: Own, layers: int) -> dict[str, Any]:
    """`sliding_window`, and what each layer sees where not all see everything."""
    if architecture.window is None:
        return {"sliding_window": None}
    length = own.get("attention.sliding_window")
    chunked = architecture.window == "chunked_attention"
    if chunked and length == 0:
        raise ModelError("GGUF metadata attention.sliding_window=0: chunks are expected")
    if not length and not chunked:
        return {"sliding_window": None, "layer_types": ["full_attention"] * layers}
    pattern = own.get("attention.sliding_window_pattern", architecture.every)
    if isinstance(pattern, np.ndarray):
        seeing_part = [bool(part) for part in pattern.tolist()]
    else:
        seeing_part = [not pattern or n % pattern < pattern - 1 for n in range(layers)]
    names = [architecture.window if part else "full_attention" for part in seeing_part]
    return {"sliding_window": None if chunked else length, "layer_types": names}


def _heads(architecture: Architecture, own: Own) -> dict[str, Any]:
    """K and V of one width, rotary positions over the whole head, unless a part may turn."""
    default = integer(own, "embedding_length") // integer(own, "attention.head_count")
    head_dim = integer(own, "attention.key_length", default=default)
    turning = integer(own, "rope.dimension_count", default=head_dim)
    checked = {"attention.value_length": own.get("attention.value_length", head_dim)}
    if not architecture.partial:
        checked["rope.dimension_count"] = turning
    for key, found in checked.items():
        if found != head_dim:
            raise ModelError(f"GGUF metadata {key}={found} differs from the heads' {head_dim}")
    if turning == head_dim:
        return {"head_dim": head_dim, "partial_rotary_factor": None}
    # The next number above, so that no rounding makes it one element less.
    return {"head_dim": head_dim, "partial_rotary_factor": math.nextafter(turning / head_dim, 1)}


def _special_tokens(header: GgufHeader) -> dict[str, Any]:
    """End of text and, where a chat model has one, end of turn."""
    found = [header.metadata.get(f"tokenizer.ggml.{x}_token_id") for x in ("eos", "eot")]
    return {
        "eos_token_id": list(dict.fromkeys(token for token in found if token is not None)),
        "bos_token_id": header.metadata.get("tokenizer.ggml.bos_token_id"),
    }
