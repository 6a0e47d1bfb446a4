"""Safetensors files in which the matrices of all experts are one tensor in MXFP4, as gpt-oss's.

        X_blocks    uint8 [experts, n, k / 32, 16]
        X_scales    uint8 [experts, n, k / 32]        see weights.mxfp4

An expert's matrix is a tensor of its own here: of `a.experts.down_proj`, those of
`a.experts.0.down_proj` and so on.
"""

from __future__ import annotations

import numpy as np

from octavo.base.errors import ModelError
from octavo.weights.checkpoint import Checkpoint, RawTensor
from octavo.weights.mxfp4 import dequantised, gguf_rows
from octavo.weights.safetensors_files import SafetensorsCheckpoint

_BLOCKS, _SCALES = "_blocks", "_scales"
_LENGTH = 32  # weights of a block


class Mxfp4Checkpoint(Checkpoint):
    """What is not in MXFP4 is stored as floats."""

    def __init__(self, tensors: SafetensorsCheckpoint) -> None:
        """Raises ModelError where blocks lack their scales."""
        self._tensors = tensors
        self._experts: dict[str, tuple[str, int]] = {}  # name -> joined tensor, expert
        self._shapes: dict[str, tuple[int, ...]] = {}
        shapes = tensors.shapes()
        joined = [name.removesuffix(_BLOCKS) for name in shapes if name.endswith(_BLOCKS)]
        for name in joined:
            blocks, scales = shapes[name + _BLOCKS], shapes.get(name + _SCALES)
            if len(blocks) != 4 or blocks[3] != _LENGTH // 2 or scales != blocks[:3]:
                raise ModelError(f"{name}{_BLOCKS} {list(blocks)} has scales {scales}")
            parent, _, last = name.rpartition(".")
            for expert in range(blocks[0]):
                own = f"{parent}.{expert}.{last}"
                self._experts[own] = name, expert
                self._shapes[own] = blocks[1], blocks[2] * _LENGTH
        hidden = {name + end for name in joined for end in (_BLOCKS, _SCALES)}
        self._shapes |= {name: shape for name, shape in shapes.items() if name not in hidden}

    def identity(self) -> str:
        return self._tensors.identity()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._shapes

    def stored(self, name: str) -> str:
        return "mxfp4" if name in self._experts else self._tensors.stored(name)

    def blocks(self, name: str) -> np.ndarray:
        return gguf_rows(*self._parts(name))

    def read(self, name: str) -> RawTensor:
        if name not in self._experts:
            return self._tensors.read(name)
        return RawTensor("float32", dequantised(*self._parts(name)))

    def _parts(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        joined, expert = self._experts[name]
        blocks, scales = (self._tensors.bytes(joined + end) for end in (_BLOCKS, _SCALES))
        return blocks[expert], scales[expert]
