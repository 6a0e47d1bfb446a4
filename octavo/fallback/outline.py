"""A model of full size without its weights: only shapes are computed with."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers.initialization import no_init_weights

from octavo.fallback import loading
from octavo.fallback.interface import NAME, register
from octavo.fallback.packed import record
from octavo.fallback.selftest import with_attention
from octavo.fallback.shapes import Recorder
from octavo.weights.checkpoint import Checkpoint

_ZERO = {torch.Tensor.__bool__: False, torch.Tensor.item: 0, torch.Tensor.__int__: 0}


def outline(
    model_class: Any, config: Any, checkpoint: Checkpoint | None, dtype: torch.dtype
) -> nn.Module:
    """On the meta device. Raises ModelError where a checkpoint is not one of this model."""
    if checkpoint is not None:
        return loading.without_values(model_class, config, checkpoint, dtype)
    register()
    with no_init_weights(), torch.device("meta"):
        made: nn.Module = model_class._from_config(with_attention(config, NAME), dtype=dtype)
    return made.eval()


@torch.inference_mode()
def record_outline(model: nn.Module, asks_past: bool) -> Recorder:
    """The calls of one forward pass over shapes."""
    with _NoValues():
        return record(model, torch.zeros(2, dtype=torch.int64, device="meta"), asks_past)


class _NoValues(TorchFunctionMode):
    """Where a model asks for values, there are none, or zero. None of that reaches the shapes of
    keys and values: it is how experts find their tokens, and rotary tables whether to grow."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked = args[0] if args else None
        if isinstance(asked, torch.Tensor) and asked.is_meta:
            if func in _ZERO:
                return _ZERO[func]
            if func in (torch.Tensor.nonzero, torch.nonzero):
                return asked.new_empty((0, asked.dim()), dtype=torch.int64)
            if func is torch.Tensor.tolist:
                return torch.zeros(asked.shape, dtype=asked.dtype, device="cpu").tolist()
            if func is torch.Tensor.split and not isinstance(args[1], int):
                rest = (asked.new_empty((n, *asked.shape[1:])) for n in args[1][1:])
                return asked, *rest
            if func is torch._grouped_mm:  # knows not every shape without values
                return asked.new_empty((asked.shape[0], args[1].shape[-1]))
        return func(*args, **(kwargs or {}))
