"""Phi-3 and Phi-4: q, k and v are one tensor, gate and up another."""

from __future__ import annotations

from octavo.models.build import Traits
from octavo.models.config import Config
from octavo.models.decoder import decoder
from octavo.models.spec import ModelSpec


def phi3(config: Config, kv_dtype: str) -> ModelSpec:
    traits = Traits(fused_qkv=True, fused_mlp=True, understood=("partial_rotary_factor",))
    return decoder("phi3", config, kv_dtype, traits)
