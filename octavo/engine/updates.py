"""Weights in use: from which tensors, which epoch that is, and what comes in place of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octavo.base.errors import ModelError
from octavo.files.short_names import cache_folder
from octavo.models.facts import ModelFacts
from octavo.weights.checkpoint import STORED, Checkpoint, Dtype, RawTensor
from octavo.weights.dummy import DummyCheckpoint
from octavo.weights.safetensors_files import SafetensorsCheckpoint
from octavo.weights.updated import (
    Digests,
    UpdatedCheckpoint,
    epoch_of,
    kept_digests,
    tensor_digests,
    wanted,
)

Source = str | Path | Mapping[str, Any]  # a safetensors file, or a state dict


class CurrentWeights:
    """The checkpoint that a model has been loaded from, and its epoch."""

    def __init__(
        self, spec: ModelFacts, checkpoint: Checkpoint, digests: Digests, threads: int
    ) -> None:
        self.checkpoint = checkpoint
        self.epoch = epoch_of(digests)
        self._spec = spec
        self._digests = digests
        self._threads = threads

    @classmethod
    def of(cls, spec: ModelFacts, checkpoint: Checkpoint, threads: int) -> CurrentWeights:
        """Weights as they are on disk."""
        names = list(spec.tensors)
        if isinstance(checkpoint, DummyCheckpoint):  # its seed says it all
            digests = dict.fromkeys(names, checkpoint.identity())
        else:
            digests = kept_digests(checkpoint, names, threads, cache_folder() / "digests")
        return cls(spec, checkpoint, digests, threads)

    def replaced(self, source: Source) -> CurrentWeights:
        """These with some tensors, or all, in place of others; nothing is loaded yet.

        Raises:
            ModelError: a tensor cannot be read, is unknown, or is of another shape.
        """
        tensors = wanted(self._spec, _read(source))
        checkpoint = UpdatedCheckpoint(self.checkpoint, tensors)
        digests = self._digests | tensor_digests(checkpoint, tensors, self._threads)
        return CurrentWeights(self._spec, checkpoint, digests, self._threads)


def _read(source: Source) -> dict[str, RawTensor]:
    if isinstance(source, Mapping):
        return {name: _raw(name, tensor) for name, tensor in source.items()}
    files = SafetensorsCheckpoint.of_file(Path(source))
    return {name: files.read(name) for name in files.shapes()}


def _raw(name: str, tensor: Any) -> RawTensor:
    """A copy of a numpy array or a torch tensor, which may be trained on."""
    if hasattr(tensor, "detach"):
        import torch

        tensor = tensor.detach().cpu().contiguous()
        if tensor.dtype == torch.bfloat16:
            bits = tensor.view(torch.int16).numpy().view(np.uint16)
            return RawTensor("bfloat16", bits.copy())
        tensor = tensor.numpy()
    dtypes: dict[str, Dtype] = {"float32": "float32", "float16": "float16"}
    dtype = dtypes.get(str(getattr(tensor, "dtype", None)))
    if dtype is None:
        raise ModelError(
            f"{name} must be an array or tensor of {', '.join(STORED)}, got "
            f"{getattr(tensor, 'dtype', type(tensor).__name__)}"
        )
    return RawTensor(dtype, np.array(tensor))
