"""Rotary positions as a GGUF file says them, in the words of a config.json."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.models.config import number
from octavo.models.gguf_architecture import Architecture, Own

_THETA = 10000.0
_NAMES = {
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
    "attention.temperature_scale": "llama_4_scaling_beta",
}


def gguf_rope(architecture: Architecture, own: Own, files: ModelFiles) -> dict[str, Any]:
    """The config's `rope_parameters`; those of windows apart where they differ."""
    scaled = _scaled(architecture, own, files)
    if not architecture.plain_in_windows:
        return scaled
    usual = _THETA if architecture.model_type == "gemma3_text" else scaled["rope_theta"]
    theta = number(own, "rope.freq_base_swa", default=usual)
    return {
        "full_attention": scaled,
        "sliding_attention": {"rope_type": "default", "rope_theta": theta},
    }


def _scaled(architecture: Architecture, own: Own, files: ModelFiles) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": number(own, "rope.freq_base", default=_THETA)}
    kind = own.get("rope.scaling.type", "linear" if "rope.scale_linear" in own else "none")
    attention = own.get("rope.scaling.attn_factor", own.get("rope.scaling.yarn_attn_factor", 1.0))
    if "rope_factors_long.weight" in files.gguf.tensors:
        return rope | _longrope(own, attention, files)
    rope["rope_type"] = "default" if kind == "none" else kind
    if kind != "none":
        rope["factor"] = number(own, "rope.scaling.factor", "rope.scale_linear")
    if kind == "yarn":
        rope |= _yarn(architecture, own, rope["factor"], attention)
    elif attention != 1.0:
        raise ModelError(f"GGUF metadata rope.scaling.attn_factor={attention} needs type yarn")
    if "rope_freqs.weight" in files.gguf.tensors:
        rope["freq_factors"] = _floats(files, "rope_freqs.weight")
    return rope


def _yarn(architecture: Architecture, own: Own, factor: float, attention: float) -> dict[str, Any]:
    """GGUF's attention factor multiplies YaRN's own; Transformers' replaces it. DeepSeek's files
    say a tenth of the other's multiplier, and no `mscale`, which equals the other there."""
    found = {new: own[old] for old, new in _NAMES.items() if old in own}
    if architecture.model_type == "gpt_oss":
        found["truncate"] = False
    multiplier = own.get("rope.scaling.yarn_log_multiplier", 0.0)
    if multiplier and architecture.model_type == "deepseek_v2":
        return found | {"mscale": 10 * multiplier, "mscale_all_dim": 10 * multiplier}
    if multiplier:
        return found | {"mscale": 1.0, "mscale_all_dim": multiplier}
    if attention != 1.0:
        found["attention_factor"] = attention * (0.1 * math.log(max(factor, 1.0)) + 1.0)
    return found


def _longrope(own: Own, attention: float, files: ModelFiles) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "attention_factor": attention,
        "long_factor": _floats(files, "rope_factors_long.weight"),
        "short_factor": _floats(files, "rope_factors_short.weight"),
        "original_max_position_embeddings": own.get("rope.scaling.original_context_length"),
    }


def _floats(files: ModelFiles, name: str) -> list[float]:
    tensor = files.gguf.tensors.get(name)
    if tensor is None:
        raise ModelError(f"{files.path} has no tensor {name}")
    if tensor.type.name != "F32":
        raise ModelError(f"{files.path}: {name} must be F32, got {tensor.type.name}")
    count = math.prod(tensor.shape)
    floats: list[float] = np.fromfile(files.path, "<f4", count, offset=tensor.offset).tolist()
    return floats
