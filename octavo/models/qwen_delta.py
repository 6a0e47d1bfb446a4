"""Qwen3-Next and Qwen3.5: gated delta nets among gated attention; norms centred at zero."""

from __future__ import annotations

from dataclasses import replace

from octavo.base.errors import ModelError
from octavo.models.config import Config, flag, integer
from octavo.models.decoder import Build, Names, Traits, decoder
from octavo.models.qwen import EXPERTS, feeds
from octavo.models.spec import (
    AttentionSpec,
    DeltaSpec,
    LinearSpec,
    ModelSpec,
    NormSpec,
    OpSpec,
    ParamSpec,
)
from octavo.models.state_spaces import convolution, parts


def qwen3_next(config: Config, kv_dtype: str) -> ModelSpec:
    """Experts, and an MLP for all tokens beside them."""
    traits = replace(_traits(config), mixers=_next_mixers, feeds=feeds)
    return decoder("qwen3_next", config, kv_dtype, traits)
