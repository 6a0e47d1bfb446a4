"""Qwen2 (2.5 too) and Qwen3, dense. Windows by layer come with the KV groups."""

from __future__ import annotations

from octavo.models.config import Config, flag
from octavo.models.decoder import Traits, decoder
from octavo.models.spec import ModelSpec


def qwen2(config: Config, kv_dtype: str) -> ModelSpec:
    """Biases on q, k and v only."""
    return decoder("qwen2", config, kv_dtype, Traits(qkv_bias=True))


def qwen3(config: Config, kv_dtype: str) -> ModelSpec:
    """Norms over each head of q and k; heads of their own size."""
    bias = flag(config, "attention_bias")
    return decoder("qwen3", config, kv_dtype, Traits(qkv_bias=bias, o_bias=bias, qk_norm=True))
