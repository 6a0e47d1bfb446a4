"""Parameters by their checkpoint name: a tied tensor is one parameter because it has one name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch

from octavo.models.spec import ParamSpec
from octavo.weights.checkpoint import RawTensor


class Params:
    """Allocates each named tensor once; filled from a checkpoint by `load`."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.device = device
        self._tensors: dict[str, torch.Tensor] = {}

    def get(self, spec: ParamSpec) -> torch.Tensor:
        if spec.name not in self._tensors:
            self._tensors[spec.name] = torch.empty(spec.shape, dtype=self.dtype, device=self.device)
        return self._tensors[spec.name]

    def stack(self, specs: Sequence[ParamSpec]) -> torch.Tensor:
        """Parameters of one shape as one tensor, [len(specs), ...]; each is a part of it."""
        whole = torch.empty((len(specs), *specs[0].shape), dtype=self.dtype, device=self.device)
        for spec, part in zip(specs, whole, strict=True):
            self._tensors[spec.name] = part
        return whole

    @property
    def num_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self._tensors.values())

    def load(
        self,
        read: Callable[[str], RawTensor],
        watch: Callable[[Iterable[str]], Iterable[str]] = lambda names: names,
    ) -> None:
        """Fill every parameter; `watch` may show progress over the names."""
        for name in watch(list(self._tensors)):
            self._tensors[name].copy_(to_torch(read(name)))


def to_torch(raw: RawTensor) -> torch.Tensor:
    """The same values as a CPU tensor of the dtype they were stored in (a copy: numpy's memory
    may be a read-only view of a file)."""
    tensor = torch.from_numpy(np.array(raw.array))
    return tensor.view(torch.bfloat16) if raw.dtype == "bfloat16" else tensor
