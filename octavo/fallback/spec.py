"""What the engine knows of a model that Transformers computes, before any weights are read."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.kv import KVGroup
from octavo.models.spec import AttendSpec


@dataclass(frozen=True)
class FallbackSpec:
    """Facts that a forward pass without weights has shown; see `models.facts`."""

    family: str
    config: str  # a digest of all of it
    vocab_size: int
    max_model_len: int
    attends: tuple[AttendSpec, ...]  # by KV slot, which groups call a layer
    kv_groups: tuple[KVGroup, ...]
    eos_token_ids: tuple[int, ...]
    num_parameters: int
    tied: bool
    needless: tuple[str, ...]
    tensors: dict[str, tuple[int, ...]]  # of the checkpoint
