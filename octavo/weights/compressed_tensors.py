"""Safetensors files in which compressed-tensors keeps linears as int8.

        X.weight        int8 [n, k]
        X.weight_scale  float [n, 1]      weight = code * scale

Other tensors are stored as floats.
"""

from __future__ import annotations

import numpy as np

from octavo.base.errors import ModelError
from octavo.models.quantization import Int8Scheme
from octavo.weights.checkpoint import Checkpoint, RawTensor, to_float32
from octavo.weights.safetensors_files import SafetensorsCheckpoint


class CompressedTensorsCheckpoint(Checkpoint):
    """Codes and their scales are one tensor here. It is stored as "int8" where activations are
    quantised too; else it is there to be multiplied as floats, and stored as "float32"."""

    def __init__(self, tensors: SafetensorsCheckpoint, scheme: Int8Scheme) -> None:
        """Raises ModelError where codes lack their scales."""
        self._tensors = tensors
        self._coded = "int8" if scheme.activations else "float32"
        self._scales = _scales(tensors)

    def identity(self) -> str:
        return self._tensors.identity()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden = set(self._scales.values())
        return {n: shape for n, shape in self._tensors.shapes().items() if n not in hidden}

    def stored(self, name: str) -> str:
        return self._coded if name in self._scales else self._tensors.stored(name)

    def codes(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        scales = to_float32(self._tensors.read(self._scales[name]))
        return self._tensors.int8(name), scales.reshape(-1)

    def read(self, name: str) -> RawTensor:
        if name not in self._scales:
            return self._tensors.read(name)
        codes, scales = self.codes(name)
        values = codes * scales[:, None]
        values.flags.writeable = False
        return RawTensor("float32", values)


def _scales(tensors: SafetensorsCheckpoint) -> dict[str, str]:
    """Tensor of codes -> tensor of their scales."""
    shapes, scales = tensors.shapes(), {}
    for name in filter(tensors.is_int8, shapes):
        shape, scale = shapes[name], f"{name}_scale"
        if len(shape) != 2 or shapes.get(scale) != (shape[0], 1):
            found = list(shapes[scale]) if scale in shapes else "none"
            raise ModelError(
                f"{name}, int8 {list(shape)}, needs a scale for each row in {scale}; has {found}"
            )
        scales[name] = scale
    return scales
