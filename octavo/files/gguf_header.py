"""The front of a GGUF file: metadata and tensor directory. Reads no weights.

The gguf package's own reader takes seconds over a vocabulary of 49k tokens, since it makes numpy
arrays of every string, and trusts the file. This one takes a tenth of a second and checks every
bound: a broken or hostile file costs one ModelError, and memory in proportion to its size.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from octavo.base.errors import ModelError
from octavo.files.gguf_types import DEFAULT_ALIGNMENT, TENSOR_TYPES, TensorType, ValueType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4

_LENGTH = struct.Struct("<Q")

# Value type -> format letter; struct and numpy agree on these.
_LETTERS = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}


@dataclass(frozen=True)
class GgufTensor:
    """Where one tensor lies, and how it is written."""

    name: str
    shape: tuple[int, ...]  # elements, slowest axis first (row-major), as torch has it
    type: TensorType
    offset: int  # bytes from the start of the file
    num_bytes: int


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself.

    Metadata values are plain Python values; arrays of strings are lists, arrays of numbers are
    read-only numpy arrays.
    """

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @classmethod
    def read(cls, path: Path) -> GgufHeader:
        """Read the header of the little-endian GGUF file (version 2 or 3) at `path`.

        Raises:
            ModelError: the file cannot be opened, is no GGUF file, is cut short, or says
                something impossible; the message names the file and what is wrong.
        """
        try:
            with path.open("rb") as file:
                if file.read(len(MAGIC)) != MAGIC:  # an empty file cannot be mapped
                    raise ModelError(f"{path} is not a GGUF file: it does not begin with GGUF")
                with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                    return cls(*_read(_Cursor(path, data)))
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error


class _Cursor:
    """A place in the file that only moves forward and never past the end."""

    def __init__(self, path: Path, data: mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = len(MAGIC)
        self.reading = "header"  # for messages: what is being read

    def fail(self, what: str) -> NoReturn:
        raise ModelError(f"{self.path}: {self.reading}: {what}")

    def skip(self, count: int) -> int:
        """Step over `count` bytes and return where they start."""
        start = self.position
        if count > self.size - start:
            self.fail(f"cut short: needs {count} bytes at {start}, the file has {self.size}")
        self.position = start + count
        return start

    def number(self, letter: str) -> Any:
        start = self.skip(struct.calcsize("<" + letter))
        return struct.unpack_from("<" + letter, self.data, start)[0]

    def numbers(self, letter: str, count: int) -> np.ndarray:
        dtype = np.dtype("<" + letter)
        start = self.skip(count * dtype.itemsize)
        raw = self.data[start : self.position]
        if letter == "?":  # a bool of any byte but 0 and 1 would not equal True
            return np.frombuffer(raw, np.uint8).astype(np.bool_)
        return np.frombuffer(raw, dtype)

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """The hot loop: a vocabulary and its merges are a hundred thousand strings."""
        data, start, texts = self.data, self.position, []
        try:
            for _ in range(count):
                end = start + 8 + _LENGTH.unpack_from(data, start)[0]
                if end > self.size:
                    self.fail(f"cut short: a string ends at {end}, the file has {self.size} bytes")
                texts.append(data[start + 8 : end].decode())
                start = end
        except struct.error:
            self.fail(f"cut short: a string begins at {start}, the file has {self.size} bytes")
        except UnicodeDecodeError:
            self.fail(f"the string at {start} is not UTF-8")
        self.position = start
        return texts

    def value(self) -> Any:
        kind = self._kind()
        if kind is ValueType.STRING:
            return self.string()
        return self._array() if kind is ValueType.ARRAY else self.number(_LETTERS[kind])

    def _array(self) -> list[str] | np.ndarray:
        kind = self._kind()
        count = self.number("Q")
        if kind is ValueType.ARRAY:
            self.fail("arrays of arrays are not supported")
        if kind is ValueType.STRING:
            return self.strings(count)
        return self.numbers(_LETTERS[kind], count)

    def _kind(self) -> ValueType:
        code = self.number("I")
        try:
            return ValueType(code)
        except ValueError:
            self.fail(f"unknown value type {code}")


def _read(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    version = cursor.number("I")
    if version not in VERSIONS:
        what = "a big-endian file" if version & 0xFFFF == 0 else f"GGUF version {version}"
        cursor.fail(f"{what} is not supported; little-endian versions 2 and 3 are")
    num_tensors, num_entries = cursor.number("Q"), cursor.number("Q")
    metadata = _read_metadata(cursor, num_entries)
    relative = _read_directory(cursor, num_tensors)
    return metadata, _place(cursor, relative, _alignment(cursor, metadata))


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        cursor.reading = f"metadata entry {index} of {count}"
        key = cursor.string()
        cursor.reading = f"metadata {key!r}"
        if key in metadata:
            cursor.fail("given twice")
        metadata[key] = cursor.value()
    return metadata


def _read_directory(cursor: _Cursor, count: int) -> dict[str, GgufTensor]:
    """Tensors with their offsets as written: relative to the start of the data."""
    tensors: dict[str, GgufTensor] = {}
    for index in range(count):
        cursor.reading = f"tensor {index} of {count}"
        name = cursor.string()
        cursor.reading = f"tensor {name!r}"
        if name in tensors:
            cursor.fail("given twice")
        tensors[name] = _read_tensor(cursor, name)
    return tensors


def _read_tensor(cursor: _Cursor, name: str) -> GgufTensor:
    num_dims = cursor.number("I")
    if num_dims > MAX_DIMS:
        cursor.fail(f"has {num_dims} dimensions; at most {MAX_DIMS}")
    shape = tuple(cursor.numbers("Q", num_dims).tolist()[::-1])  # fastest axis first in the file
    code = cursor.number("I")
    if code not in TENSOR_TYPES:
        cursor.fail(f"unknown tensor type {code}")
    kind = TENSOR_TYPES[code]
    block = kind.block_length
    if shape and shape[-1] % block:
        cursor.fail(f"rows of {shape[-1]} elements are no whole {kind.name} blocks of {block}")
    num_bytes = math.prod(shape) // block * kind.block_bytes
    return GgufTensor(name, shape, kind, cursor.number("Q"), num_bytes)


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    cursor.reading = "metadata 'general.alignment'"
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or value < 1 or value & (value - 1):
        cursor.fail(f"must be a power of two, got {value!r}")
    return value


def _place(
    cursor: _Cursor, relative: dict[str, GgufTensor], alignment: int
) -> dict[str, GgufTensor]:
    """Make offsets absolute, and check that each tensor lies within the file."""
    start = math.ceil(cursor.position / alignment) * alignment
    placed = {}
    for tensor in relative.values():
        cursor.reading = f"tensor {tensor.name!r}"
        offset = start + tensor.offset
        if tensor.offset % alignment:
            cursor.fail(f"offset {tensor.offset} is no multiple of {alignment}")
        if offset + tensor.num_bytes > cursor.size:
            cursor.fail(
                f"cut short: {tensor.num_bytes} bytes at {offset}, the file has {cursor.size}"
            )
        placed[tensor.name] = GgufTensor(
            tensor.name, tensor.shape, tensor.type, offset, tensor.num_bytes
        )
    return placed
