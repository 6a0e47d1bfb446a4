"""What every checkpoint offers: names and shapes, and one tensor at a time. Knows no format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

Dtype = Literal["float32", "float16", "bfloat16"]

STORED: dict[Dtype, type[np.generic]] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,  # numpy has no bfloat16: its bits
}


@dataclass(frozen=True)
class RawTensor:
    """A tensor as it is stored: read-only, and a view of the file where it can be."""

    dtype: Dtype
    array: np.ndarray  # of STORED[dtype]


class Checkpoint(Protocol):
    """Tensors by their names in Hugging Face layout."""

    def identity(self) -> str:
        """Says which files these are; changes when they do."""
        ...

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor's shape; reads no weights."""
        ...

    def stored(self, name: str) -> str:
        """The tensor's type: a `Dtype`, a GGUF block format in lower case ("q4_1"), or "int8"."""
        ...

    def read(self, name: str) -> RawTensor:
        """Its values. Raises ModelError where they cannot be read or understood."""
        ...

    def blocks(self, name: str) -> np.ndarray:
        """Its rows as a block format packs them, uint8 [rows, bytes of a row]."""
        raise AssertionError(f"{name} is not in blocks")

    def codes(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Where it is stored as "int8": int8 [rows, columns], and their scales, float32 [rows]."""
        raise AssertionError(f"{name} is not in int8")


def file_identity(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()}:{status.st_size}:{status.st_mtime_ns}"


def to_float32(raw: RawTensor) -> np.ndarray:
    """The values, exactly: every float16 and bfloat16 is a float32."""
    if raw.dtype == "bfloat16":
        return (raw.array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return raw.array.astype(np.float32, copy=False)
