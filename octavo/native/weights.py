"""A checkpoint's tensors as the kernels want them: packed once, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from octavo.base.errors import ModelError
from octavo.models.spec import ExpertsSpec, ModelSpec, ParamSpec
from octavo.native.interface import Native, Packed
from octavo.native.pack_cache import PackCache
from octavo.weights.checkpoint import Checkpoint, RawTensor, to_float32
from octavo.weights.formats import BLOCK_FORMATS, FLOAT_FORMATS, INT8, QUANTISED_FORMATS
from octavo.weights.parameters import Parameters

_ROWS = 1024  # converted at a time, so that a copy of a large tensor is never made


class Weights:
    """Every tensor of a spec by its name; a tied head is the embedding's very memory.

    `cache` is the folder where weights are kept that had to be quantised; None: they are not.
    """

    def __init__(
        self,
        native: Native,
        spec: ModelSpec,
        checkpoint: Checkpoint,
        formats: Mapping[str, str],
        threads: int,
        cache: Path | None = None,
        watch: Callable[[Iterable[str]], Iterable[str]] = lambda names: names,
    ) -> None:
        self._native = native
        self._checkpoint = Parameters(spec, checkpoint)
        params = spec.params()
        self._vectors = {p.name: self._vector(p.name) for p in params if p.name not in formats}
        matrices = self._together(spec, formats)
        matrices |= {
            p.name: native.Packed(formats[p.name], *p.shape)
            for p in params
            if p.name in formats and p.name not in matrices
        }
        self._matrices = matrices
        self._check_int8()
        kept = PackCache(cache, checkpoint.identity(), formats) if cache is not None else None
        if not any(self._is_quantised_here(name) for name in matrices):
            kept = None
        if kept is not None and kept.load(matrices):
            return
        with ThreadPoolExecutor(threads) as pool:
            for _ in zip(watch(list(matrices)), pool.map(self._pack, matrices), strict=True):
                pass
        if kept is not None:
            kept.keep(matrices)

    @property
    def num_bytes(self) -> int:
        matrices = sum(matrix.nbytes for matrix in self._matrices.values())
        return matrices + sum(vector.nbytes for vector in self._vectors.values())

    def matrix(self, spec: ParamSpec) -> Packed:
        return self._matrices[spec.name]

    def vector(self, spec: ParamSpec) -> np.ndarray:
        """float32, of the parameter's shape"""
        return self._vectors[spec.name]

    def _together(self, spec: ModelSpec, formats: Mapping[str, str]) -> dict[str, Packed]:
        """Of experts, in one memory by layer and kind: each alone would be too small for huge
        pages."""
        made: dict[str, Packed] = {}
        for op in (op for layer in spec.layers for op in layer.ops):
            for linears in (op.gates, op.ups, op.downs) if isinstance(op, ExpertsSpec) else ():
                names = [linear.weight.name for linear in linears]
                for format in {formats[name] for name in names}:
                    alike = [name for name in names if formats[name] == format]
                    n, k = linears[0].weight.shape
                    packed = self._native.packed_together(format, n, k, len(alike))
                    made |= zip(alike, packed, strict=True)
        return made

    def _vector(self, name: str) -> np.ndarray:
        return np.ascontiguousarray(to_float32(self._checkpoint.read(name)))

    def _check_int8(self) -> None:
        """Raises ModelError where codes are to be made of floats."""
        for name, matrix in self._matrices.items():
            if matrix.format == INT8 and self._checkpoint.stored(name) != INT8:
                raise ModelError(f"{name} is kept in int8, and cannot be made of floats here")

    def _is_quantised_here(self, name: str) -> bool:
        format = self._matrices[name].format
        return format in BLOCK_FORMATS and self._checkpoint.stored(name) != format

    def _pack(self, name: str) -> None:
        packed, stored = self._matrices[name], self._checkpoint.stored(name)
        if stored == packed.format:
            self._keep(packed, name)
        elif FLOAT_FORMATS.get(stored) == packed.format:
            self._native.pack_float(packed, self._checkpoint.read(name).array, 0)
        elif packed.format in BLOCK_FORMATS:
            self._quantise(packed, name)
        else:
            for start, rows in self._floats(name, packed):
                self._native.pack_float(packed, rows, start)

    def _keep(self, packed: Packed, name: str) -> None:
        """The stored numbers, in the format that they are stored in."""
        if packed.format == INT8:
            self._native.pack_int8(packed, *self._checkpoint.codes(name), 0)
        else:
            self._native.pack_blocks(packed, self._checkpoint.blocks(name), 0)

    def _quantise(self, packed: Packed, name: str) -> None:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import quantize

        kind = GGMLQuantizationType[packed.format.upper()]
        for start, rows in self._floats(name, packed):
            self._native.pack_blocks(packed, quantize(rows, kind), start)

    def _floats(self, name: str, like: Packed) -> Iterator[tuple[int, np.ndarray]]:
        """The stored values, some rows at a time: (first row, float32 [rows, k])."""
        stored = self._checkpoint.stored(name)
        quantised = stored in QUANTISED_FORMATS
        if quantised:
            kept = self._native.Packed(stored, like.n, like.k)
            self._keep(kept, name)
        else:
            raw = self._checkpoint.read(name)
        for start in range(0, like.n, _ROWS):
            if quantised:
                rows = np.empty((min(_ROWS, like.n - start), like.k), np.float32)
                self._native.unpack(kept, start, rows)
            else:
                part = RawTensor(raw.dtype, raw.array[start : start + _ROWS])
                rows = np.ascontiguousarray(to_float32(part))
            yield start, rows
