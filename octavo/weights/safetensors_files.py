"""Checkpoints in safetensors files, one or sharded, memory-mapped.

Format: 8 bytes of header length, a JSON header of names with dtype, shape and the data's two
offsets, then the data. The header is checked against the file before any tensor is looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.weights.checkpoint import STORED, Checkpoint, Dtype, RawTensor, file_identity

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_MAX_HEADER = 100_000_000  # bytes; the format's own limit
_DTYPES: dict[str, Dtype] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_INT8, _INT64, _BYTES = "I8", "I64", "U8"
_ITEMSIZE = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    _INT8: 1,
    _INT64: 8,
    _BYTES: 1,
}  # of the dtypes that are read


@dataclass(frozen=True)
class _Entry:
    """Where one tensor lies."""

    file: Path
    data: mmap
    dtype: str  # as the file names it
    shape: tuple[int, ...]
    start: int  # byte in the file


class SafetensorsCheckpoint(Checkpoint):
    """All tensors of a folder's safetensors files."""

    def __init__(self, entries: Mapping[str, _Entry]) -> None:
        self._entries = entries

    @classmethod
    def open(cls, files: ModelFiles) -> SafetensorsCheckpoint:
        """Map the files that the index names, or the single one; reads their headers only.

        Raises:
            ModelError: a file is missing, cut short or broken, or lacks what the index promises.
        """
        index = files.json(INDEX)
        if index is None:
            return cls(_entries(files.path / SINGLE))
        placed = index.get("weight_map")
        if not isinstance(placed, dict) or not all(isinstance(f, str) for f in placed.values()):
            raise ModelError(f"{files.path / INDEX} has no weight_map of tensors to files")
        entries: dict[str, _Entry] = {}
        for shard in sorted(set(placed.values())):
            entries |= _entries(files.path / shard)
        for name, shard in placed.items():
            if name not in entries:
                raise ModelError(f"{files.path / shard} lacks {name}, which {INDEX} places there")
        return cls(entries)

    @classmethod
    def of_file(cls, path: Path) -> SafetensorsCheckpoint:
        """A single file, wherever it is. Raises ModelError as `open` does."""
        return cls(_entries(path))

    def identity(self) -> str:
        files = sorted({entry.file for entry in self._entries.values()})
        return " ".join(file_identity(file) for file in files)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: entry.shape for name, entry in self._entries.items()}

    def stored(self, name: str) -> Dtype:
        """Raises ModelError where the tensor's dtype is not supported."""
        entry = self._entries[name]
        if entry.dtype not in _DTYPES:
            raise ModelError(f"{entry.file}: {name} has dtype {entry.dtype}, not supported")
        return _DTYPES[entry.dtype]

    def is_int8(self, name: str) -> bool:
        return self._entries[name].dtype == _INT8

    def int8(self, name: str) -> np.ndarray:
        """The integers of a tensor of int8, a view of the mapped file."""
        return _view(self._entries[name], np.int8)

    def int64(self, name: str) -> np.ndarray:
        """Integers, a view of the mapped file. Raises ModelError where they are others."""
        entry = self._entries[name]
        if entry.dtype != _INT64:
            raise ModelError(f"{entry.file}: {name} must be {_INT64}, got {entry.dtype}")
        return _view(entry, np.int64)

    def bytes(self, name: str) -> np.ndarray:
        """A tensor of uint8, a view of the mapped file. Raises ModelError where it is none."""
        entry = self._entries[name]
        if entry.dtype != _BYTES:
            raise ModelError(f"{entry.file}: {name} must be {_BYTES}, got {entry.dtype}")
        return _view(entry, np.uint8)

    def read(self, name: str) -> RawTensor:
        """A view of the mapped file.

        Raises:
            ModelError: the tensor's dtype is not supported.
        """
        dtype = self.stored(name)
        return RawTensor(dtype, _view(self._entries[name], STORED[dtype]))


def _view(entry: _Entry, kind: type[np.generic]) -> np.ndarray:
    flat = np.frombuffer(entry.data, kind, math.prod(entry.shape), entry.start)
    flat = np.require(flat, requirements="A")  # the format promises no alignment
    return flat.reshape(entry.shape)


def _entries(file: Path) -> dict[str, _Entry]:
    if not file.is_file():
        raise ModelError(f"{file} is missing")
    try:
        with file.open("rb") as opened:
            data = mmap(opened.fileno(), 0, access=ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ModelError(f"{file} cannot be read: {error}") from error
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(_MAX_HEADER, len(data) - 8):
        raise ModelError(f"{file} is cut short or no safetensors file")
    header = _header(file, data[8 : 8 + size])
    return {name: _entry(file, data, 8 + size, name, said) for name, said in header.items()}


def _header(file: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{file} has a broken header: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{file} has a broken header: not an object")
    header.pop("__metadata__", None)
    return header


def _entry(file: Path, data: mmap, base: int, name: str, said: Any) -> _Entry:
    """One tensor's place, checked: its bytes must lie in the file and be as many as its shape."""
    try:
        dtype, shape = str(said["dtype"]), tuple(int(n) for n in said["shape"])
        start, end = (int(n) for n in said["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{file} has a broken entry for {name}") from error
    if not 0 <= start <= end or base + end > len(data):
        raise ModelError(f"{file} is cut short: {name} ends at byte {base + end} of {len(data)}")
    if dtype in _ITEMSIZE:
        expected = math.prod(shape) * _ITEMSIZE[dtype]
        if min(shape, default=0) < 0 or end - start != expected:
            raise ModelError(f"{file}: {name} has {end - start} bytes, its shape {expected}")
    return _Entry(file, data, dtype, shape, base + start)
