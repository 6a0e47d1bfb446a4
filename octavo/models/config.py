"""Reading a model's config: typed fields under their several names, and what must be refused.

A config is the dictionary of a config.json in either Transformers style (before 5, and 5). It is
read as Transformers reads it, which is the reference: keys that a family's class does not know
are ignored there and here, except those whose presence says that the mathematics is another.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from octavo.base.errors import ModelError
from octavo.models.quantization import int8_scheme, is_mxfp4

Config = Mapping[str, Any]

# What Transformers' config classes fill in where public config files leave a field out, besides
# what class_defaults.json says: patterns of layers, and types that are not computed here.
_MORE_DEFAULTS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": []},
    "cohere2": {"sliding_window_pattern": 4},
    "gemma2": {"sliding_window_pattern": 2},
    "gemma3_text": {"sliding_window_pattern": 6},
    "gemma3n_text": {"head_dim": 256, "num_kv_shared_layers": 15, "sliding_window_pattern": 5},
    "gemma4_text": {"global_head_dim": 512, "sliding_window_pattern": 6},
    "gpt_oss": {"sliding_window_pattern": 2},
    "granitemoehybrid": {"attn_layer_indices": []},
    "llama4_text": {"no_rope_layer_interval": 4},
    "olmo3": {"sliding_window_pattern": 4},
    "qwen2": {"sliding_window": 4096},
    "qwen2_moe": {"sliding_window": 4096},
    "qwen3": {"sliding_window": 4096},
    "qwen3_moe": {"sliding_window": 4096},
    "qwen3_5_moe_text": {"full_attention_interval": 4},
    "qwen3_5_text": {"full_attention_interval": 4},
    "qwen3_next": {"full_attention_interval": 4},
}

_NESTED = ("text_config", "llm_config", "language_config")

# Options that change the mathematics of a plain decoder, unless they have one of these values.
_OFF = (None, False)
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": _OFF,
    "alibi": _OFF,
    "attention_chunk_size": _OFF,
    "attention_multiplier": _OFF,
    "attn_logit_softcapping": _OFF,
    "attn_temperature_tuning": _OFF,
    "causal": (None, True),
    "clip_qkv": _OFF,
    "compression_config": _OFF,
    "dual_chunk_attention_config": _OFF,
    "embedding_multiplier": (None, 1),
    "final_logit_softcapping": _OFF,
    "is_causal": (None, True),
    "is_encoder_decoder": _OFF,
    "kv_lora_rank": _OFF,
    "logit_scale": (None, 1),
    "logits_scaling": (None, 1),
    "n_routed_experts": (*_OFF, 0),
    "no_rope_layers": (None, []),
    "num_experts": (*_OFF, 0),
    "num_kv_shared_layers": (None, 0),
    "num_local_experts": (*_OFF, 0),
    "partial_rotary_factor": (None, 1),
    "q_lora_rank": _OFF,
    "qk_layernorm": _OFF,
    "query_pre_attn_scalar": _OFF,
    "residual_multiplier": (None, 1),
    "rope_interleaved": _OFF,
    "use_bidirectional_attention": _OFF,
    "use_cla": _OFF,
    "use_parallel_residual": _OFF,
    "use_qk_norm": _OFF,
}


def text_part(config: Config) -> Config | None:
    """The decoder's part of the config of a model that also sees or hears; None: it is all text."""
    return next((config[n] for n in _NESTED if isinstance(config.get(n), Mapping)), None)


def text_config(config: Config) -> dict[str, Any]:
    """The decoder's own part of `config`, with what its Transformers class would fill in."""
    config = text_part(config) or config
    kind = str(config.get("model_type"))
    return {**class_defaults().get(kind, {}), **_MORE_DEFAULTS.get(kind, {}), **config}


@cache
def class_defaults() -> dict[str, dict[str, Any]]:
    """By model_type; scripts/class-defaults writes them."""
    text = files("octavo.models").joinpath("class_defaults.json").read_text()
    table: dict[str, dict[str, Any]] = json.loads(text)
    return table


def refuse_unknown_mathematics(config: Config, understood: Collection[str] = ()) -> None:
    """Raises ModelError for an option that a plain decoder would have to ignore, and that is not
    among those `understood`."""
    rope = section(config, "rope_scaling", "rope_parameters") or {}
    said = {"partial_rotary_factor": rope.get("partial_rotary_factor"), **config}
    for name, neutral in _NEUTRAL.items():
        if name not in understood and said.get(name) not in neutral:
            raise ModelError(f"config: {name}={said[name]!r} is not supported")
    int8_scheme(config)  # refuses the other ways to quantise
    if is_mxfp4(config) and "quantization_config" not in understood:
        raise ModelError("config: quantization_config mxfp4 is supported for gpt_oss only")


def value(config: Config, *names: str) -> Any:
    """The first of `names` that is there and not null; else None."""
    return next((config[name] for name in names if config.get(name) is not None), None)


def integer(config: Config, *names: str, default: int | None = None) -> int:
    """A whole number above 0 under the first of `names` that is there.

    Raises:
        ModelError: it is missing and has no default, or is no such number.
    """
    found = value(config, *names)
    if found is None and default is not None:
        return default
    if found is None:
        raise ModelError(f"config: {names[0]} is missing")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise ModelError(f"config: {names[0]} must be a whole number above 0, got {found!r}")
    return found


def count(config: Config, name: str) -> int:
    """A whole number of things, 0 where it is missing; errors as `integer`."""
    found = config.get(name)
    return 0 if found in (None, 0) else integer(config, name)


def integers(config: Config, *names: str) -> list[int] | None:
    """A list of whole numbers under the first of `names` that is there; None where none is.

    Raises:
        ModelError: it is no such list.
    """
    found = value(config, *names)
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(entry, int) for entry in found):
        raise ModelError(f"config: {names[0]} must be a list of whole numbers, got {found!r}")
    return found


def number(config: Config, *names: str, default: float | None = None) -> float:
    """A number above 0 under the first of `names` that is there; errors as `integer`."""
    found = value(config, *names)
    if found is None and default is not None:
        return default
    if found is None:
        raise ModelError(f"config: {names[0]} is missing")
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not found > 0:
        raise ModelError(f"config: {names[0]} must be a number above 0, got {found!r}")
    return float(found)


def section(config: Config, *names: str) -> Config | None:
    """A nested object under the first of `names` that is there; None where none is.

    Raises:
        ModelError: it is no object.
    """
    found = value(config, *names)
    if found is not None and not isinstance(found, Mapping):
        raise ModelError(f"config: {names[0]} must be an object, got {found!r}")
    return found


def flag(config: Config, name: str, default: bool = False) -> bool:
    found = config.get(name)
    if found is None:
        return default
    if not isinstance(found, bool):
        raise ModelError(f"config: {name} must be true or false, got {found!r}")
    return found
