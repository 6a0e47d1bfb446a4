"""What describes one of GGUF's architectures, and the keys that several have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

Own = Mapping[str, Any]  # the architecture's keys of the metadata, without its name in front
Derive = Callable[[Own, Collection[str]], dict[str, Any]]  # of those and the tensors' names

SOFTMAX, SIGMOID = 1, 2  # values of expert_gating_func


@dataclass(frozen=True)
class Architecture:
    """`keys` and `always` come on top of what all architectures have; `derive` says the rest."""

    model_type: str
    keys: Mapping[str, str] = field(default_factory=dict)  # of metadata -> of config.json
    always: Mapping[str, Any] = field(default_factory=dict)  # what no metadata say
    derive: Derive | None = None
    accepts: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # keys of no account then
    read: tuple[str, ...] = ()  # further keys, that `derive` or the rotary positions read
    window: str | None = None  # what layers that see a part only are called
    every: int = 0  # of so many layers one sees all, where no metadata say; 0: none does
    partial: bool = False  # a part of each head may turn
    plain_in_windows: bool = False  # there a rotary base may differ, and is never scaled
    attends: bool = True
    also: tuple[str, ...] = ()  # further types of models that `derive` may say, or files come from


EXPERTS_USED = {"expert_used_count": "num_experts_per_tok"}
EXPERTS = {
    **EXPERTS_USED,
    "expert_count": "num_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
}
SHARED_EXPERT = {
    **EXPERTS,
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
ROUTED_EXPERTS = {
    **EXPERTS_USED,
    "expert_count": "n_routed_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "expert_shared_count": "n_shared_experts",
    "expert_weights_norm": "norm_topk_prob",
    "expert_weights_scale": "routed_scaling_factor",
    "leading_dense_block_count": "first_k_dense_replace",
}
LOCAL_EXPERTS = {**EXPERTS_USED, "expert_count": "num_local_experts"}
GRANITE = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "logit_scale": "logits_scaling",
    "residual_scale": "residual_multiplier",
}
