"""The function that Transformers calls for every layer that attends, and who receives the call.

It is registered in Transformers' AttentionInterface under a name of its own. Whose model it is, is
said by the module that calls: each module of a model holds the receiver, so that several models in
one process do not know of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

NAME = "octavo"  # config._attn_implementation of models that call
_HELD = "_octavo"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: T tokens, positions encoded, keys and values not repeated for grouped heads."""

    path: str  # of the module, in its model
    module: torch.nn.Module
    query: torch.Tensor  # [1, num_heads, T, head_dim]
    key: torch.Tensor  # [1, num_kv_heads, T, head_dim]
    value: torch.Tensor  # [1, num_kv_heads, T, v_head_dim]
    mask: Any
    options: Mapping[str, Any]  # keyword arguments

    def rows(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k, v, each [T, heads, dim]"""
        q, k, v = (x[0].transpose(0, 1) for x in (self.query, self.key, self.value))
        return q, k, v


Receiver = Callable[[Call], torch.Tensor]  # gives [T, num_heads, v_head_dim]


def register() -> None:
    """So that `NAME` is known; again, where it is already, changes nothing."""
    AttentionInterface.register(NAME, _attend)


def receive(model: torch.nn.Module, receiver: Receiver) -> None:
    """All calls of `model` go to `receiver`, from now on."""
    for path, module in model.named_modules():
        vars(module)[_HELD] = path, receiver


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    path, receiver = vars(module)[_HELD]
    call = Call(path, module, query, key, value, attention_mask, options)
    return receiver(call)[None], None
