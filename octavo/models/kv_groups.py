"""The exact KV memory of any public decoder config, as KV groups. Reads no weights."""

from __future__ import annotations

from octavo.base.errors import ModelError
from octavo.base.kv import KVGroup, KVKind
from octavo.models.config import Config, count, flag, integer, section, text_config, value
from octavo.models.layer_kinds import layer_count, layer_kinds, window_length
from octavo.models.memory import ITEMSIZE, KV_SCALE_BYTES, kv_head_bytes
from octavo.models.state_bytes import state_bytes

_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "multi_query_group_num",
    "kv_n_heads",
)
_HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")


def kv_groups(config: Config, kv_dtype: str) -> tuple[KVGroup, ...]:
    """Layers with the same kind and window make a group, in order of first appearance. States are
    float32 whatever `kv_dtype` is.

    Mixtures of experts have no influence; layers that read another layer's KV keep none.

    Raises:
        ModelError: a field is missing, or a layer keeps something not understood, or something
            that `kv_dtype` has no form for.
    """
    config = text_config(config)
    members: dict[KVKind, list[int]] = {}
    for layer, kinds in enumerate(layer_kinds(config)):
        for kind in kinds:
            members.setdefault(kind, []).append(layer)
    return tuple(_group(config, kv_dtype, kind, layers) for kind, layers in members.items())


def kv_bytes_per_token(groups: tuple[KVGroup, ...]) -> int:
    """What one more token costs while no window is full yet."""
    return sum(group.bytes_per_token for group in groups)


def _group(config: Config, kv_dtype: str, kind: KVKind, layers: list[int]) -> KVGroup:
    window = window_length(config, kind)
    name = kind if window is None else f"{kind}-{window}"
    if kind == "state":
        size = state_bytes(config) * len(layers)
        return KVGroup(name=name, kind=kind, layers=tuple(layers), state_bytes=size)
    return KVGroup(
        name=name,
        kind=kind,
        layers=tuple(layers),
        bytes_per_token=sum(_token_bytes(config, kv_dtype, kind, layer) for layer in layers),
        window=window,
    )


def _token_bytes(config: Config, kv_dtype: str, kind: KVKind, layer: int) -> int:
    """What one layer keeps for one token."""
    if value(config, "kv_lora_rank") is not None:
        if kv_dtype in KV_SCALE_BYTES:  # a scale belongs to a token's K or V in one head
            raise ModelError(f"kv_dtype {kv_dtype} has no form for latents, which this model keeps")
        return _latent(config) * ITEMSIZE[kv_dtype]
    k_dim = _head_dim(config, kind)
    v_names = ("swa_v_head_dim", "v_head_dim") if kind == "window" else ("v_head_dim",)
    v_dim = integer(config, *v_names, default=k_dim)
    heads = _kv_heads(config, kind, layer)
    return heads * (kv_head_bytes(kv_dtype, k_dim) + kv_head_bytes(kv_dtype, v_dim))


def _latent(config: Config) -> int:
    """Elements of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent for K
    and V and one rotary key for all heads; a sparse indexer (DeepSeek-V3.2) adds its own key."""
    latent, rotary = integer(config, "kv_lora_rank"), integer(config, "qk_rope_head_dim")
    return latent + rotary + count(config, "index_head_dim")


def _kv_heads(config: Config, kind: KVKind, layer: int) -> int:
    if kind == "window" and value(config, "swa_num_key_value_heads") is not None:
        return integer(config, "swa_num_key_value_heads")
    if kind == "full" and flag(config, "attention_k_eq_v"):  # Gemma 4
        return integer(config, "num_global_key_value_heads", *_KV_HEADS)
    if flag(config, "multi_query") and not flag(config, "new_decoder_architecture"):
        return integer(config, "multi_query_group_num", default=1)
    nested = section(config, "attn_config") or {}  # MPT, DBRX
    found = value({**config, **nested}, *_KV_HEADS)
    if isinstance(found, list):  # one number per layer (OpenELM)
        if len(found) != layer_count(config):
            raise ModelError(f"config: {len(found)} numbers of KV heads, not one a layer")
        found = found[layer]
    return integer({_KV_HEADS[0]: found}, _KV_HEADS[0], default=integer(config, *_HEADS))


def _head_dim(config: Config, kind: KVKind) -> int:
    if kind == "window" and value(config, "swa_head_dim") is not None:
        return integer(config, "swa_head_dim")
    if kind == "full" and value(config, "global_head_dim") is not None:  # Gemma 4
        return integer(config, "global_head_dim")
    if value(config, *_HEAD_DIM) is not None:
        return integer(config, *_HEAD_DIM)
    size = integer(config, "hidden_size", "n_embd", "d_model") // integer(config, *_HEADS)
    return integer({"head_dim": size}, "head_dim")
