"""A checkpoint's tensors as the kernels want them: packed once, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from octavo.models.spec import LinearSpec, ModelSpec, ParamSpec
from octavo.native.interface import Native, Packed
from octavo.weights.checkpoint import Checkpoint, RawTensor, to_float32
from octavo.weights.formats import BLOCK_FORMATS, FLOAT_FORMATS

_ROWS = 1024  # converted at a time, so that a copy of a large tensor is never made


class Weights:
    """Every tensor of a spec by its name; a tied head is the embedding's very memory."""

    def __init__(
        self,
        native: Native,
        spec: ModelSpec,
        checkpoint: Checkpoint,
        formats: Mapping[str, str],
        threads: int,
        watch: Callable[[Iterable[str]], Iterable[str]] = lambda names: names,
    ) -> None:
        self._native = native
        self._checkpoint = checkpoint
        self._formats = formats
        params = {param.name: param for param in spec.params()}
        with ThreadPoolExecutor(threads) as pool:
            packed = pool.map(self._load, params.values())
            self._tensors = dict(zip(watch(list(params)), packed, strict=True))

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def matrix(self, spec: ParamSpec) -> Packed:
        found = self._tensors[spec.name]
        assert not isinstance(found, np.ndarray), f"{spec.name} is a vector"
        return found

    def vector(self, spec: ParamSpec) -> np.ndarray:
        """float32 [size]"""
        found = self._tensors[spec.name]
        assert isinstance(found, np.ndarray), f"{spec.name} is a matrix"
        return found

    def bias(self, spec: LinearSpec) -> np.ndarray | None:
        return self.vector(spec.bias) if spec.bias else None

    def _load(self, param: ParamSpec) -> Packed | np.ndarray:
        if len(param.shape) == 1:
            return np.ascontiguousarray(to_float32(self._checkpoint.read(param.name)))
        packed = self._native.Packed(self._formats[param.name], *param.shape)
        if packed.format in BLOCK_FORMATS:
            self._pack_blocks(packed, param.name)
        else:
            self._pack_floats(packed, self._checkpoint.read(param.name))
        return packed

    def _pack_blocks(self, packed: Packed, name: str) -> None:
        """The file's own blocks where it has them; else its values, quantised anew."""
        if self._checkpoint.stored(name) == packed.format:
            self._native.pack_blocks(packed, self._checkpoint.blocks(name), 0)
            return
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import quantize

        kind = GGMLQuantizationType[packed.format.upper()]
        raw = self._checkpoint.read(name)
        for start, rows in _slices(raw):
            self._native.pack_blocks(packed, quantize(to_float32(rows), kind), start)

    def _pack_floats(self, packed: Packed, raw: RawTensor) -> None:
        if FLOAT_FORMATS[raw.dtype] == packed.format:
            self._native.pack_float(packed, raw.array, 0)
            return
        for start, rows in _slices(raw):
            self._native.pack_float(packed, np.ascontiguousarray(to_float32(rows)), start)


def _slices(raw: RawTensor) -> Iterator[tuple[int, RawTensor]]:
    for start in range(0, len(raw.array), _ROWS):
        yield start, RawTensor(raw.dtype, raw.array[start : start + _ROWS])
