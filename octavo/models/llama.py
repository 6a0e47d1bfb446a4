"""Llama 2, 3 and 3.x, SmolLM2, and Mistral."""

from __future__ import annotations

from octavo.base.errors import ModelError
from octavo.models.config import Config, flag
from octavo.models.decoder import Traits, decoder
from octavo.models.spec import ModelSpec


def llama(config: Config, kv_dtype: str) -> ModelSpec:
    """Biases are optional; `pretraining_tp` only splits the same products and is of no account."""
    if config.get("sliding_window") is not None:
        raise ModelError("config: sliding_window is not supported for llama")
    bias = flag(config, "attention_bias")
    traits = Traits(qkv_bias=bias, o_bias=bias, mlp_bias=flag(config, "mlp_bias"))
    return decoder("llama", config, kv_dtype, traits)


def mistral(config: Config, kv_dtype: str) -> ModelSpec:
    """No biases; every layer has the window, if there is one."""
    if config.get("layer_types") is not None:
        raise ModelError("config: layer_types is not supported for mistral")
    return decoder("mistral", config, kv_dtype, Traits())
