"""Random weights for a spec: to measure and to test without a checkpoint."""

from __future__ import annotations

import hashlib

import numpy as np

from octavo.models.facts import ModelFacts
from octavo.weights.checkpoint import Checkpoint, RawTensor

_STD = 0.02


class DummyCheckpoint(Checkpoint):
    """Normal weights, norms of ones. The same seed and tensor name always give the same values."""

    def __init__(self, spec: ModelFacts, seed: int) -> None:
        self._shapes = spec.tensors
        self._seed = seed

    def identity(self) -> str:
        return f"random {self._seed}"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict(self._shapes)

    def stored(self, name: str) -> str:
        return "float32"

    def read(self, name: str) -> RawTensor:
        shape = self._shapes[name]
        if name.endswith("norm.weight"):
            array = np.ones(shape, np.float32)
        else:
            digest = hashlib.sha256(f"{self._seed} {name}".encode()).digest()
            random = np.random.default_rng(np.frombuffer(digest, np.uint32))
            array = random.standard_normal(shape, np.float32) * np.float32(_STD)
        array.flags.writeable = False
        return RawTensor("float32", array)
