"""A tiny copy of any decoder's config: the same mathematics in few and narrow layers.

Sizes shrink; choices stay: activations, norms, caps, how positions are encoded, what each layer
sees. Of layers there is one of every kind. Lengths (windows, chunks, positions at which scaling
begins) become shorter than a test's prompt, so that each of them shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from transformers import PreTrainedConfig

VOCAB = 128
LONGEST = 96  # positions
_LENGTH = 6  # tokens, of windows and the like
_MOST_LAYERS = 9

# The most that stays of a size, by its name in Transformers' own vocabulary.
_MOST = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("hidden_size", "embedding_size", "word_embed_proj_dim"), 64),
    **dict.fromkeys(
        (
            "intermediate_size",
            "intermediate_size_mlp",
            "dense_intermediate_size",
            "ffn_dim",
            "decoder_ffn_dim",
            "encoder_ffn_dim",
            "n_inner",
            "dff",
        ),
        96,
    ),
    **dict.fromkeys(
        (
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "shared_experts_intermediate_size",
            "moe_shared_expert_intermediate_size",
            "shared_intermediate_size",
            "ffn_hidden_size",
        ),
        48,
    ),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank"), 32),
    **dict.fromkeys(("v_head_dim", "swa_v_head_dim", "qk_nope_head_dim", "index_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("hidden_size_per_layer_input", "laurel_rank", "index_n_heads"), 16),
    **dict.fromkeys(("num_local_experts", "num_experts", "moe_num_experts"), 8),
    **dict.fromkeys(("num_experts_per_tok", "moe_top_k", "top_k_experts", "n_group"), 2),
    **dict.fromkeys(("n_shared_experts", "topk_group", "zero_expert_num"), 1),
    **dict.fromkeys(("max_position_embeddings", "max_target_positions"), LONGEST),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "floor_scale"), _LENGTH),
    **dict.fromkeys(("window_size", "local_attention", "keep_window_size"), _LENGTH),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), 1),
    "num_layers_per_stack": 1,
    # what some models have besides a decoder
    **dict.fromkeys(("image_size", "crop_size"), 56),
    **dict.fromkeys(("num_blocks", "num_codebooks"), 2),
    **dict.fromkeys(("ext_pw_out_channel", "nemo_conv_channels", "attention_dim"), 64),
}
_ORIGINAL = "original_max_position_embeddings"
_HEAD_DIMS = (
    "head_dim",
    "qk_head_dim",
    "global_head_dim",
    "swa_head_dim",
    "kv_channels",
    "attention_head_dim",
)
_HEADS = ("num_attention_heads", "swa_num_attention_heads", "decoder_attention_heads")
_KV_HEADS = (
    "num_key_value_heads",
    "num_global_key_value_heads",
    "swa_num_key_value_heads",
    "num_kv_heads",
    "kv_n_heads",
)
_LAYERS = ("num_hidden_layers", "decoder_layers", "encoder_layers")
_PARTS = ("n_input_layers", "n_recurrent_layers", "n_output_layers")  # one after another
_FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
_STEPS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
_IDS = ("mlp_only_layers", "moe_layers", "cross_attention_layers", "full_attn_idxs")

Fields = dict[str, Any]


def shrunk(config: PreTrainedConfig) -> PreTrainedConfig:
    """A config of the same class, of a model with some hundred thousand parameters."""
    fields = config.to_dict()
    for name in (*_LAYERS, *_PARTS, "layer_types"):  # as the class counts; some write otherwise
        if name in fields:
            fields[name] = getattr(config, name)
    return type(config)(**_shrunk(fields, config.attribute_map))


def _shrunk(fields: Fields, aliases: Mapping[str, str]) -> Fields:
    """`aliases`: Transformers' names -> the config's own."""
    usual = {own: name for name, own in aliases.items()}
    head_dim = _head_dim(fields)
    heads, kv_heads = _heads(fields, usual)
    latent = _latent_dims(fields)
    layers = list(_layers(fields, usual))
    out: Fields = {}
    for own, value in fields.items():
        name = usual.get(own, own)
        if own == "per_layer_config":
            out[own] = _each(value, layers, heads, kv_heads, 2 * head_dim)
        elif isinstance(value, dict):
            out[own] = _nested(own, value, head_dim)
        elif isinstance(value, list):
            out[own] = _listed(name, value, layers, fields, usual)
        elif value is None or isinstance(value, bool | str):
            out[own] = value
        elif name in _LAYERS:
            out[own] = len(layers)
        elif name in _HEADS:
            out[own] = heads
        elif name in _KV_HEADS:
            out[own] = kv_heads
        elif name in _HEAD_DIMS:
            out[own] = latent.get(value, min(value, head_dim))
        elif name in _PARTS:
            out[own] = sum(_part(fields, layer) == name for layer in layers)
        elif name == "num_kv_shared_layers":
            out[own] = sum(layer >= _count(fields, usual) - value for layer in layers)
        elif name.endswith("_token_id"):
            out[own] = value % VOCAB
        elif name == _ORIGINAL:
            out[own] = min(value, LONGEST // 2)
        else:
            out[own] = _smaller(name, _smaller(own, value))
    return out


def _smaller(name: str, value: Any) -> Any:
    return min(value, _MOST.get(name, value)) if isinstance(value, int | float) else value


def _nested(name: str, value: Fields, head_dim: int) -> Fields:
    if "model_type" in value or name.endswith("_config"):
        return _shrunk(value, {})
    return _rope(value, head_dim) if name.startswith("rope") else value


def _each(
    value: Fields, layers: list[int], heads: int, kv_heads: int, head_dim: int
) -> Fields | None:
    """What single layers have of their own, by the layer's number as text."""
    sizes = {**dict.fromkeys(_HEADS, heads), **dict.fromkeys(_KV_HEADS, min(kv_heads, 2))}
    sizes |= dict.fromkeys(_HEAD_DIMS, head_dim)
    numbered = {int(layer): own for layer, own in (value or {}).items()}
    return {
        str(new): {name: sizes.get(name, size) for name, size in numbered[old].items()}
        for new, old in enumerate(layers)
        if old in numbered
    } or None


def _rope(fields: Fields, head_dim: int) -> Fields:
    """Rotary parameters, perhaps for each kind of layer."""
    half = int(head_dim * (fields.get("partial_rotary_factor") or 1.0)) // 2
    out: Fields = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            out[name] = _rope(value, head_dim)
        elif name in ("short_factor", "long_factor"):
            out[name] = value[:half]
        elif name == "mrope_section":
            out[name] = [half - 2 * (half // 3), half // 3, half // 3][: len(value)]
        elif name == _ORIGINAL:
            out[name] = min(value, LONGEST // 2 if fields["rope_type"] == "longrope" else 16)
        else:
            out[name] = value
    return out


def _listed(
    name: str, value: list[Any], layers: list[int], fields: Fields, usual: Mapping[str, str]
) -> list[Any]:
    if name in _IDS:
        return [new for new, old in enumerate(layers) if old in value]
    if len(value) == _count(fields, usual):
        kept = [_smaller(name, value[layer]) for layer in layers]
        return _few_heads(kept, value) if name == "num_attention_heads_per_layer" else kept
    if name.endswith("_token_id"):
        return [entry % VOCAB for entry in value]
    return value


def _few_heads(kept: list[int], value: list[int]) -> list[int]:
    sizes = sorted(set(value))
    return [4 * (1 + sizes.index(count)) for count in kept]


def _heads(fields: Fields, usual: Mapping[str, str]) -> tuple[int, int]:
    """Grouped as they were: not at all, all together, or in between."""
    found = {usual.get(own, own): value for own, value in fields.items()}
    nested = fields.get("attn_config")
    found |= nested if isinstance(nested, dict) else {}
    heads = next((found[n] for n in _HEADS if found.get(n)), 4)
    kv_heads = next((found[n] for n in _KV_HEADS if found.get(n)), heads)
    return 4, 4 if kv_heads == heads else min(2, kv_heads)


def _head_dim(fields: Fields) -> int:
    """Small, and such that the rotary part is even."""
    factors = [1.0, *_rotary_shares(fields)]
    fits = (d for d in range(16, 128, 4) if all(int(d * f) % 2 == 0 for f in factors))
    return next(fits, 128)


def _latent_dims(fields: Fields) -> dict[int, int]:
    """Where heads have a rotary and a plain part, what becomes of sizes derived of them."""
    rope, plain = fields.get("qk_rope_head_dim"), fields.get("qk_nope_head_dim")
    if not rope or not plain:
        return {}
    small = _MOST["qk_rope_head_dim"]
    return {rope: small, rope + plain: small + _MOST["qk_nope_head_dim"]}


def _rotary_shares(fields: Fields) -> Iterator[float]:
    for name, value in fields.items():
        if isinstance(value, dict) and name.startswith(("rope", "full", "sliding")):
            yield from _rotary_shares(value)
        elif name in ("partial_rotary_factor", "rotary_pct") and value is not None:
            yield value


def _count(fields: Fields, usual: Mapping[str, str]) -> int:
    found = {usual.get(own, own): value for own, value in fields.items()}
    return next((found[name] for name in _LAYERS if isinstance(found.get(name), int)), 0)


def _layers(fields: Fields, usual: Mapping[str, str]) -> Iterator[int]:
    """The first layer of each kind; two at least. Where kinds alternate by a step, all of one."""
    count = _count(fields, usual)
    step = max(fields.get(name) or 1 for name in _STEPS)
    kinds: set[tuple[Any, ...]] = set()
    for layer in range(count):
        kind = _kind(fields, usual, layer, count)
        if kind not in kinds or layer < max(2, step):
            kinds.add(kind)
            yield layer
        if len(kinds) == _MOST_LAYERS:
            return


def _kind(fields: Fields, usual: Mapping[str, str], layer: int, count: int) -> tuple[Any, ...]:
    shared = layer >= count - (fields.get("num_kv_shared_layers") or 0)
    kind: list[Any] = [shared, _part(fields, layer)]
    for own, value in fields.items():
        name = usual.get(own, own)
        if name in _FIRST and isinstance(value, int):
            kind.append(layer < value)
        elif name in _IDS and isinstance(value, list):
            kind.append(layer in value)
        elif isinstance(value, list) and len(value) == count:
            kind.append(str(value[layer]))
    return tuple(kind)


def _part(fields: Fields, layer: int) -> str | None:
    """Which of the parts that follow one another a layer belongs to, if the model has such."""
    for name in _PARTS:
        layer -= fields.get(name) or 0
        if name in fields and layer < 0:
            return name
    return None
