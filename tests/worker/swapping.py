"""Pages to swap, and a store's insides that wait or fail when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from octavo.worker.swap import SwapStore
from octavo.worker.swap_files import PageFiles
from octavo.worker.swap_pages import MemoryPages, SwapPages

A, B, C = (f"{i:064x}-0" for i in (10, 11, 12))
SIZE = 5000  # bytes
WAIT = 30.0  # seconds; nothing takes as long


def page(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def open_pages(kind: str, folder: Path) -> SwapPages:
    return MemoryPages() if kind == "memory" else PageFiles(folder)


def found(store: SwapStore, name: str, seed: int) -> bool:
    """Whether a load says so; the page must then be that of `seed`."""
    target = np.full(SIZE, 77, np.uint8)
    store.load(name, target)
    [(told, filled)] = store.finished(WAIT)
    assert told == name
    assert not filled or np.array_equal(target, page(seed))
    return filled


class Gated:
    """Pages whose `put` and `get` stop at a gate, and any of whose calls may fail."""

    def __init__(self, inner: SwapPages, fault: Callable[[str], None] = lambda call: None) -> None:
        self._inner, self._fault = inner, fault
        self.puts: list[str] = []
        self.reached = {call: threading.Event() for call in ("put", "get")}
        self.gates = {call: threading.Event() for call in ("put", "get")}
        self.open()

    def open(self) -> None:
        for gate in self.gates.values():
            gate.set()

    def stop(self, call: str) -> None:
        self.reached[call].clear()
        self.gates[call].clear()

    def names(self):
        return self._inner.names()

    def put(self, name, page):
        self.puts.append(name)
        self._pass("put")
        self._inner.put(name, page)

    def get(self, name, page):
        self._pass("get")
        return self._inner.get(name, page)

    def remove(self, name):
        self._fault("remove")
        self._inner.remove(name)

    def touch(self, name):
        self._fault("touch")
        self._inner.touch(name)

    def close(self):
        self._inner.close()

    def _pass(self, call):
        self.reached[call].set()
        assert self.gates[call].wait(WAIT)
        self._fault(call)
