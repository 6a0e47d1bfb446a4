"""Weights into a Transformers model: tensors of a checkpoint, one at a time, never a pickle.

Transformers is handed names with tensors that are read when it comes to them; it renames and
merges them as the class wants.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from octavo.base.errors import ModelError
from octavo.base.log import logger
from octavo.fallback.interface import NAME, register
from octavo.fallback.quiet import quiet
from octavo.fallback.selftest import with_attention
from octavo.weights.checkpoint import Checkpoint

Watch = Callable[[Iterable[str]], Iterable[str]]

_SHOWN = 5

log = logger("fallback")


class Stored:
    """A tensor that is read when it is indexed, as Transformers does with those of a file."""

    def __init__(self, checkpoint: Checkpoint, name: str, tick: Callable[[], None]) -> None:
        self._checkpoint = checkpoint
        self._name = name
        self._tick = tick

    def __getitem__(self, index: Any) -> torch.Tensor:
        self._tick()
        raw = self._checkpoint.read(self._name)
        tensor = torch.from_numpy(np.array(raw.array))
        return (tensor.view(torch.bfloat16) if raw.dtype == "bfloat16" else tensor)[index]


def load(
    model_class: Any,
    config: Any,
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: str,
    watch: Watch = lambda names: names,
) -> nn.Module:
    """A model with its weights on `device`.

    Raises:
        ModelError: the checkpoint lacks tensors, or has some of another shape.
    """
    names = list(checkpoint.shapes())
    ticks, lock = iter(watch(names)), threading.Lock()

    def tick() -> None:
        with lock:
            next(ticks, None)

    tensors = {name: Stored(checkpoint, name, tick) for name in names}
    model = _from_tensors(model_class, config, tensors, dtype, device)
    for _ in ticks:
        pass
    return model


def without_values(
    model_class: Any, config: Any, checkpoint: Checkpoint, dtype: torch.dtype
) -> nn.Module:
    """The same without values, from headers alone. Raises as `load` does."""
    tensors = {
        name: torch.empty(shape, dtype=dtype, device="meta")
        for name, shape in checkpoint.shapes().items()
    }
    return _from_tensors(model_class, config, tensors, dtype, "meta")


def _from_tensors(
    model_class: Any, config: Any, tensors: Mapping[str, Any], dtype: torch.dtype, device: str
) -> nn.Module:
    register()
    try:
        with quiet():
            model, report = model_class.from_pretrained(
                None,
                config=with_attention(config, NAME),
                state_dict=tensors,
                dtype=dtype,
                device_map=device,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # which the report then names
            )
    except ModelError:
        raise
    except Exception as error:
        line = str(error).strip().partition("\n")[0].partition(" For details")[0]
        raise ModelError(f"Transformers cannot load the checkpoint: {line}") from error
    if report["missing_keys"]:
        raise ModelError(f"the checkpoint lacks {_some(report['missing_keys'])}")
    if report["mismatched_keys"]:
        wrong = [
            f"{name} {list(there)} instead of {list(wanted)}"
            for name, there, wanted in report["mismatched_keys"]
        ]
        raise ModelError(f"the checkpoint has misshapen {_some(wrong)}")
    if report["unexpected_keys"] and device == "meta":
        log.warning("the model does not read %s", _some(report["unexpected_keys"]))
    made: nn.Module = model.eval()
    return made


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    count = "1 tensor" if len(names) == 1 else f"{len(names)} tensors"
    return f"{count}: {shown}{', ...' if len(names) > _SHOWN else ''}"
