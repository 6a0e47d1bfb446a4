"""A checkpoint some of whose tensors have been replaced; what tells contents apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from octavo.base.errors import ModelError
from octavo.models.facts import ModelFacts
from octavo.weights.checkpoint import Checkpoint, RawTensor
from octavo.weights.formats import BLOCK_FORMATS, INT8
from octavo.weights.match import is_needless

Digests = dict[str, str]  # of each tensor, hexadecimal sha256


class UpdatedCheckpoint(Checkpoint):
    """`tensors` in place of those of `base`; those that an earlier update put there stay."""

    def __init__(self, base: Checkpoint, tensors: Mapping[str, RawTensor]) -> None:
        self._base = base
        self._tensors = dict(tensors)
        if isinstance(base, UpdatedCheckpoint):
            self._base = base._base
            self._tensors = base._tensors | self._tensors

    def identity(self) -> str:
        return f"{self._base.identity()} with {len(self._tensors)} tensors replaced"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._base.shapes()

    def stored(self, name: str) -> str:
        return self._tensors[name].dtype if name in self._tensors else self._base.stored(name)

    def read(self, name: str) -> RawTensor:
        return self._tensors[name] if name in self._tensors else self._base.read(name)

    def blocks(self, name: str) -> np.ndarray:
        return self._base.blocks(name)

    def codes(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self._base.codes(name)


def wanted(spec: ModelFacts, tensors: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """Those of `tensors` that the spec has.

    Raises:
        ModelError: one is unknown or of another shape; the message names it.
    """
    shapes = spec.tensors
    kept = {}
    for name, tensor in tensors.items():
        if is_needless(spec, name):
            continue
        if name not in shapes:
            raise ModelError(f"the model has no tensor {name}")
        if tensor.array.shape != shapes[name]:
            got = list(tensor.array.shape)
            raise ModelError(f"{name} is {got} instead of {list(shapes[name])}")
        kept[name] = tensor
    return kept


def tensor_digests(checkpoint: Checkpoint, names: Iterable[str], threads: int) -> Digests:
    names = list(names)
    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(names, pool.map(partial(_digest, checkpoint), names), strict=True))


def kept_digests(
    checkpoint: Checkpoint, names: Iterable[str], threads: int, folder: Path
) -> Digests:
    """The same, from a file in `folder` where they have been computed before for the very files."""
    names = sorted(names)
    said = json.dumps([checkpoint.identity(), names])
    path = folder / f"{hashlib.sha256(said.encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict) and sorted(found) == names:
            return found
    digests = tensor_digests(checkpoint, names, threads)
    with suppress(OSError):  # then it is computed again next time
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(digests))
        part.replace(path)
    return digests


def epoch_of(digests: Digests) -> str:
    """Says which weights these are, wherever they came from: 16 hexadecimal digits."""
    whole = json.dumps(sorted(digests.items()))
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _digest(checkpoint: Checkpoint, name: str) -> str:
    stored = checkpoint.stored(name)
    if stored == INT8:
        parts: tuple[np.ndarray, ...] = checkpoint.codes(name)
    elif stored in BLOCK_FORMATS:
        parts = (checkpoint.blocks(name),)
    else:
        parts = (checkpoint.read(name).array,)
    digest = hashlib.sha256(f"{stored} {[part.shape for part in parts]}\n".encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
