"""The parameters of a spec, each read from the tensor of a checkpoint that it is, or is part of."""

from __future__ import annotations

import numpy as np

from octavo.models.spec import ModelSpec, Part
from octavo.weights.checkpoint import Checkpoint, RawTensor
from octavo.weights.formats import QUANTISED_FORMATS


class Parameters(Checkpoint):
    """A checkpoint by the names of parameters. What is cut of rows stays in the format that it is
    stored in; what is turned around is read as floats."""

    def __init__(self, spec: ModelSpec, checkpoint: Checkpoint) -> None:
        self._specs = {param.name: param for param in spec.params()}
        self._checkpoint = checkpoint
        self._last: tuple[str, RawTensor] | None = None  # that parts were taken of

    def identity(self) -> str:
        return self._checkpoint.identity()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: param.shape for name, param in self._specs.items()}

    def stored(self, name: str) -> str:
        param = self._specs[name]
        stored = self._checkpoint.stored(next(iter(param.tensors)))
        moved = bool(param.joined) or (param.part is not None and param.part.turned is not None)
        return "float32" if moved and stored in QUANTISED_FORMATS else stored

    def read(self, name: str) -> RawTensor:
        param = self._specs[name]
        if param.part is not None:
            whole = self._read_once(param.part.tensor)
            return RawTensor(whole.dtype, _taken(param.part, whole.array))
        found = [self._checkpoint.read(tensor) for tensor in param.tensors]
        if param.joined:
            return RawTensor(found[0].dtype, np.concatenate([raw.array for raw in found]))
        return found[0]

    def _read_once(self, tensor: str) -> RawTensor:
        """Parts of a tensor follow one another, and each would dequantise all of it."""
        last = self._last
        if last is None or last[0] != tensor:
            last = self._last = tensor, self._checkpoint.read(tensor)
        return last[1]

    def blocks(self, name: str) -> np.ndarray:
        part = self._specs[name].part
        if part is None:
            return self._checkpoint.blocks(name)
        rows = self._checkpoint.blocks(part.tensor)
        return _taken(part, rows.reshape(*part.shape[:-1], -1))

    def codes(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        part = self._specs[name].part
        if part is None:
            return self._checkpoint.codes(name)
        codes, scales = self._checkpoint.codes(part.tensor)
        return _taken(part, codes), _taken(part, scales.reshape(part.shape[:-1]))


def _taken(part: Part, array: np.ndarray) -> np.ndarray:
    array = array if part.index is None else array[part.index]
    array = array.T if part.turned == "before" else array
    array = _rows(part, array)
    array = array.T if part.turned == "after" else array
    if part.halved is not None:
        array = _halved(array, *part.halved)
    return array


def _rows(part: Part, array: np.ndarray) -> np.ndarray:
    if part.take is None:
        return array
    if part.every is None:
        return array[part.start : part.start + part.take]
    runs = array.reshape(-1, part.every, *array.shape[1:])
    return runs[:, part.start : part.start + part.take].reshape(-1, *array.shape[1:])


def _halved(array: np.ndarray, head: int, first: int, turning: int) -> np.ndarray:
    order = np.arange(head)
    order[first : first + turning] = first + np.arange(turning).reshape(-1, 2).T.reshape(-1)
    heads = array.reshape(-1, head, *array.shape[1:])
    return heads[:, order].reshape(array.shape)
