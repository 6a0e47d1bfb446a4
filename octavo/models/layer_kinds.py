"""What each layer of a public decoder config keeps: full, window, chunked, state, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.base.errors import ModelError
from octavo.base.kv import KVKind
from octavo.models.config import Config, count, flag, integer, integers, section, value

Kinds = tuple[KVKind, ...]  # of one layer; empty where it keeps nothing of its own

_NAMED: dict[Any, Kinds] = {
    "full_attention": ("full",),
    "attention": ("full",),
    "*": ("full",),  # the letters of hybrid_override_pattern (Nemotron-H)
    "sliding_attention": ("window",),
    "chunked_attention": ("chunked",),
    "linear_attention": ("state",),
    "mamba": ("state",),
    "mamba2": ("state",),
    "conv": ("state",),
    "M": ("state",),
    "hybrid": ("full", "state"),
    "moe": (),
    "mlp": (),
    "E": (),
    "-": (),
    0: ("full",),  # the numbers of hybrid_layer_pattern (MiMo-V2)
    1: ("window",),
}

_LISTS = ("layer_types", "layers_block_type", "hybrid_override_pattern", "hybrid_layer_pattern")

# Ways of mixing layers that are known to exist and are not read here.
_NOT_READ = (
    "attention_layers",
    "attention_types",
    "attn_type_list",
    "block_configs",
    "block_types",
    "is_encoder_decoder",
    "layer_group_size",
)

_STATE_MODELS = ("mamba", "mamba2", "falcon_mamba")


def layer_kinds(config: Config) -> tuple[Kinds, ...]:
    """The kinds of KV that each layer keeps, in order.

    Raises:
        ModelError: a layer's type is unknown, or layers are mixed in a way not understood.
    """
    for name in _NOT_READ:
        if config.get(name):
            raise ModelError(f"config: {name} is not understood, so its KV cannot be counted")
    listed = value(config, *_LISTS)
    num_layers = layer_count(config)
    if listed is None:
        rule = _rule(config)
        kinds = tuple(rule(i) for i in range(num_layers))
    elif isinstance(listed, (list, tuple, str)) and len(listed) == num_layers:
        kinds = tuple(_named(name) for name in listed)
    else:
        raise ModelError(f"config: there must be {num_layers} layer types, got {listed!r}")
    return tuple(() if _shares(config, i, num_layers) else k for i, k in enumerate(kinds))


def layer_count(config: Config) -> int:
    """As it is said; else as many as are listed."""
    listed = value(config, *_LISTS) or None
    known = len(listed) if isinstance(listed, (list, tuple, str)) else None
    return integer(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers", default=known)


def listed_type(config: Config, layer: int) -> Any:
    """What the config's list calls a layer; None where it has no list."""
    listed = value(config, *_LISTS)
    return None if listed is None else listed[layer]


def window_length(config: Config, kind: KVKind) -> int | None:
    """Tokens visible in a layer of `kind`; None where all are."""
    if kind == "window":
        return integer(config, "sliding_window", "sliding_window_size")
    return integer(config, "attention_chunk_size") if kind == "chunked" else None


def _named(name: Any) -> Kinds:
    if not isinstance(name, (str, int)) or name not in _NAMED:
        raise ModelError(f"config: layer type {name!r} is not understood")
    return _NAMED[name]


def _shares(config: Config, layer: int, num_layers: int) -> bool:
    """Whether a layer reads the KV of one below it: Gemma 3n's last layers, Hunyuan's CLA."""
    if flag(config, "use_cla") and layer % integer(config, "cla_share_factor"):
        return True
    return layer >= num_layers - count(config, "num_kv_shared_layers")


def _rule(config: Config) -> Callable[[int], Kinds]:
    """How layers follow from numbers in the config, where it does not list them."""
    model_type = config.get("model_type")
    if model_type in _STATE_MODELS:
        return lambda i: ("state",)
    if model_type == "falcon_h1":  # attention and state-space mixer side by side in every layer
        return lambda i: ("full", "state")
    full = _full_among_states(config)
    if full is not None:
        return lambda i: ("full",) if full(i) else ("state",)
    if value(config, "attention_chunk_size") is not None:
        return _chunked(config)
    return _windowed(config)


def _full_among_states(config: Config) -> Callable[[int], bool] | None:
    """Which layers of a hybrid attend: Qwen3-Next, Jamba, Bamba and LFM2, Kimi Linear."""
    if value(config, "full_attention_interval") is not None:
        interval = integer(config, "full_attention_interval")
        return lambda i: (i + 1) % interval == 0
    if value(config, "attn_layer_period") is not None:
        period, offset = integer(config, "attn_layer_period"), count(config, "attn_layer_offset")
        return lambda i: i % period == offset
    indices = integers(config, "attn_layer_indices", "full_attn_idxs")
    if indices is not None:
        return lambda i: i in indices
    linear = section(config, "linear_attn_config")
    if linear is not None:
        counted_from_one = integers(linear, "full_attn_layers") or []
        return lambda i: i + 1 in counted_from_one
    return None


def _chunked(config: Config) -> Callable[[int], Kinds]:
    """Llama 4: every layer is chunked but those without rotary positions."""
    turn = turning_layers(config)
    return lambda i: ("chunked",) if turn[i] else ("full",)


def turning_layers(config: Config) -> list[bool]:
    """Whether each layer has rotary positions, by `no_rope_layers`, which says 1 where one has; or
    one of so many has none.

    Raises:
        ModelError: it has not one entry a layer.
    """
    listed, layers = integers(config, "no_rope_layers"), layer_count(config)
    if not listed:
        interval = integer(config, "no_rope_layer_interval", default=4)
        return [bool((i + 1) % interval) for i in range(layers)]
    if len(listed) != layers:
        raise ModelError(f"config: no_rope_layers has {len(listed)} entries, not one a layer")
    return [bool(entry) for entry in listed]


def _windowed(config: Config) -> Callable[[int], Kinds]:
    """No window, all windows (Mistral), a repeated pattern, or as the class of the model has it."""
    if value(config, "sliding_window") is None or not flag(config, "use_sliding_window", True):
        return lambda i: ("full",)
    pattern = value(config, "sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(pattern, str) and pattern:  # EXAONE 4: "LLLG", local and global
        return lambda i: ("window",) if pattern[i % len(pattern)] == "L" else ("full",)
    if pattern is not None:
        every = integer({"sliding_window_pattern": pattern}, "sliding_window_pattern")
        return lambda i: ("window",) if (i + 1) % every else ("full",)
    seeing_part = _windows_of_class(config)
    return lambda i: ("window",) if seeing_part(i) else ("full",)


def _windows_of_class(config: Config) -> Callable[[int], bool]:
    """Qwen2's and Qwen3's later layers have windows, every other one of Qwen2-MoE's first ones,
    those of SmolLM3 without rotary positions, and else all of them."""
    kind, bound = config.get("model_type"), count(config, "max_window_layers")
    if kind == "qwen2_moe":
        return lambda i: i % 2 == 0 and i < bound
    if kind == "smollm3":
        turn = turning_layers(config)
        return lambda i: not turn[i]
    first = 0 if kind == "qwen3_moe" or "use_sliding_window" not in config else bound
    return lambda i: i >= first
