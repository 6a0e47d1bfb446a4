"""A GGUF file as a checkpoint: names translated, rows unpermuted, quantised types dequantised."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap

import numpy as np

from octavo.base.errors import ModelError
from octavo.files.gguf_header import GgufTensor
from octavo.files.gguf_types import TensorType
from octavo.files.model_files import ModelFiles
from octavo.models.gguf_config import layers_of
from octavo.models.spec import AttentionSpec, ModelSpec
from octavo.weights.checkpoint import (
    STORED,
    Checkpoint,
    Dtype,
    RawTensor,
    file_identity,
    to_float32,
)
from octavo.weights.gguf_names import PERMUTED, translate

_PLAIN: dict[TensorType, Dtype] = {
    TensorType.F32: "float32",
    TensorType.F16: "float16",
    TensorType.BF16: "bfloat16",
}

_BLOCKS_TOGETHER = 256


@dataclass(frozen=True)
class _Piece:
    """What a name stands for: a tensor of the file, or some of its rows."""

    tensor: GgufTensor
    shape: tuple[int, ...]
    first: int = 0  # elements before it

    @property
    def offset(self) -> int:
        return self.tensor.offset + self._bytes(self.first)

    @property
    def num_bytes(self) -> int:
        return self._bytes(math.prod(self.shape))

    def _bytes(self, elements: int) -> int:
        kind = self.tensor.type
        return elements // kind.block_length * kind.block_bytes


class GgufCheckpoint(Checkpoint):
    """All tensors of a GGUF file; `spec` says how many rows a head has, and a joined tensor's
    parts."""

    def __init__(self, files: ModelFiles, spec: ModelSpec) -> None:
        self._path = files.path
        architecture = str(files.gguf.metadata.get("general.architecture"))
        layers = layers_of(files.gguf)
        self._pieces = {
            name: piece
            for tensor in files.gguf.tensors.values()
            for name, piece in _pieces(translate(architecture, tensor.name, layers), tensor, spec)
        }
        self._heads = _permuted_heads(spec) if architecture in PERMUTED else {}
        with files.path.open("rb") as opened:
            self._data = mmap(opened.fileno(), 0, access=ACCESS_READ)

    def identity(self) -> str:
        return file_identity(self._path)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: piece.shape for name, piece in self._pieces.items()}

    def stored(self, name: str) -> str:
        kind = self._pieces[name].tensor.type
        return _PLAIN.get(kind, kind.name.lower())

    def blocks(self, name: str) -> np.ndarray:
        """A view of the mapped file where the tensor is not permuted."""
        piece = self._pieces[name]
        rows = self._packed(piece).reshape(piece.shape[0], -1)
        rows = unpermute(rows, self._heads[name]) if name in self._heads else rows
        rows.flags.writeable = False
        return rows

    def read(self, name: str) -> RawTensor:
        """A view of the mapped file where the tensor is neither quantised nor permuted.

        Raises:
            ModelError: the tensor's type cannot be dequantised.
        """
        piece = self._pieces[name]
        raw = self._plain(piece) if piece.tensor.type in _PLAIN else self._dequantised(piece)
        if name in self._heads:
            raw = RawTensor(raw.dtype, unpermute(raw.array, self._heads[name]))
        if name.endswith(".A_log"):  # files have what is computed of it, -exp(A_log)
            raw = RawTensor("float32", np.log(-to_float32(raw)))
        raw.array.flags.writeable = False
        return raw

    def _packed(self, piece: _Piece) -> np.ndarray:
        return np.frombuffer(self._data, np.uint8, piece.num_bytes, piece.offset)

    def _plain(self, piece: _Piece) -> RawTensor:
        dtype = _PLAIN[piece.tensor.type]
        flat = np.frombuffer(self._data, STORED[dtype], math.prod(piece.shape), piece.offset)
        return RawTensor(dtype, flat.reshape(piece.shape))

    def _dequantised(self, piece: _Piece) -> RawTensor:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        kind = piece.tensor.type
        # Blocks stand alone, and dequantize takes 16 rows at a time: longer rows are faster.
        together = math.gcd(piece.num_bytes // kind.block_bytes, _BLOCKS_TOGETHER)
        packed = self._packed(piece).reshape(-1, together * kind.block_bytes)
        try:
            values = dequantize(packed, GGMLQuantizationType(kind.code))
        except NotImplementedError as error:
            raise ModelError(
                f"{self._path}: {piece.tensor.name} has type {kind.name}, not supported"
            ) from error
        return RawTensor("float32", values.reshape(piece.shape))


def _pieces(
    names: tuple[str, ...], tensor: GgufTensor, spec: ModelSpec
) -> Iterator[tuple[str, _Piece]]:
    """What a tensor holds, by name."""
    if len(names) == 1 and "{}" in names[0]:
        shape = tensor.shape[1:]
        for n in range(tensor.shape[0]):
            yield names[0].format(n), _Piece(tensor, shape, n * math.prod(shape))
        return
    first = 0
    for name in names:
        shape = tensor.shape if len(names) == 1 else spec.tensors.get(name, ())
        yield name, _Piece(tensor, _as_wanted(shape, spec.tensors.get(name, shape)), first)
        first += math.prod(shape)


def _as_wanted(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of length one come and go, and norms of groups are one vector."""
    long = [[n for n in axes if n != 1] for axes in (shape, wanted)]
    flat = wanted == (math.prod(shape),)
    return wanted if flat or long[0] == long[1] else shape


def unpermute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo the order of q and k rows in llama files: [num_heads * head_dim, ...], a copy.

    Rows of a head lie there as RoPE pairs, 0 h 1 h+1 2 h+2 ... with h = head_dim / 2, so that
    neighbours turn together; here element i turns with i + h, so they lie as 0 1 2 ... again.
    """
    paired = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return paired.swapaxes(1, 2).reshape(rows.shape)


def _permuted_heads(spec: ModelSpec) -> dict[str, int]:
    """Parameter name -> heads, for the parameters whose rows are permuted."""
    heads: dict[str, int] = {}
    for op in (op for layer in spec.layers for op in layer.ops if isinstance(op, AttentionSpec)):
        for linear, count in ((op.q, op.attend.num_heads), (op.k, op.attend.num_kv_heads)):
            params = (linear.weight, linear.bias)
            heads |= {param.name: count for param in params if param is not None}
    return heads
