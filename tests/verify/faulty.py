"""A native library with one wrong kernel: a linear that adds in an order of its own when a step has
several rows."""

from __future__ import annotations

from typing import Any

import numpy as np

BLOCK = 16  # inputs that are summed together


class FaultyNative:
    """`native`, but for the `name` of layer `layer`, counted from 0."""

    def __init__(self, native: Any, name: str, layer: int) -> None:
        self._native, self._name, self._layer = native, name, layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def Program(self, pool: Any) -> FaultyProgram:
        return FaultyProgram(self._native, pool, self._name, self._layer)


class FaultyProgram:
    """Behaves as the program inside, whose segments it runs one after another, with a linear by
    numpy between two of them."""

    def __init__(self, native: Any, pool: Any, name: str, layer: int) -> None:
        self._native, self._program = native, native.Program(pool)
        self._wrong = (name, layer)
        self._count = 0  # linears of that name so far
        self._firsts = [0]  # the inner segment that each outer one begins with
        self._linear: Any = None
        self._behind = -1  # inner segment behind which it runs
        self._rows = 0  # of the step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    @property
    def segments(self) -> int:
        return len(self._firsts)

    def cut(self) -> None:
        self._program.cut()
        self._firsts.append(self._program.segments - 1)

    def linear(self, name: str, to: int, source: int, parts: Any, add: bool) -> None:
        mine = (name, self._count) == self._wrong
        self._count += name == self._wrong[0]
        if not mine:
            return self._program.linear(name, to, source, parts, add)
        [(weight, bias, scale)] = parts
        assert add and bias is None and scale == 1.0
        values = np.empty((weight.n, weight.k), np.float32)
        self._native.unpack(weight, 0, values)
        self._linear, self._behind = (to, source, values), self._program.segments - 1
        self._program.cut()

    def take(self, **step: Any) -> None:
        self._rows = len(step["context_lens"])
        self._program.take(**step)

    def start(self, segment: int) -> None:
        last = (*self._firsts, self._program.segments)[segment + 1]
        for inner in range(self._firsts[segment], last):
            self._program.start(inner)
            self._program.wait()
            if inner == self._behind:
                self._add()

    def _add(self) -> None:
        to, source, values = self._linear
        x = self._program.rows(source)
        blocks = range(0, x.shape[1], BLOCK)
        y = np.zeros((len(x), len(values)), np.float32)
        for first in blocks if self._rows == 1 else reversed(blocks):
            columns = slice(first, first + BLOCK)
            for row in range(len(x)):  # each alone: numpy's own order depends on their number
                y[row] += values[:, columns] @ x[row, columns]
        self._program.rows(to)[:] += y
