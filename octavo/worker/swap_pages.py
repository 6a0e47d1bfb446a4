"""What a swap store keeps its pages in: the interface, the digest, and host memory."""

from __future__ import annotations

import hashlib
import re
from typing import Protocol

import numpy as np

NAME = re.compile(r"[0-9a-f-]{1,200}")  # of a page; as a file's name it leads nowhere else


class SwapPages(Protocol):
    """Keeps pages, uint8 [page_bytes], by name.

    `put`, `remove` and `touch` come from one thread, `get` from another. Whatever cannot be done
    raises OSError; what could not be put may have spoiled what had the name before. `lasts`:
    another process can find them again.
    """

    lasts: bool

    def names(self) -> list[tuple[str, int]]:
        """What was there at start, with the bytes of each page, the least recently used first."""

    def put(self, name: str, page: np.ndarray) -> None:
        """Keep `page`, in place of what had that name. Nobody will change the array."""

    def get(self, name: str, page: np.ndarray) -> bool:
        """Fill `page`; whether it now holds exactly what was put under this name."""

    def remove(self, name: str) -> None:
        """It need not be there."""

    def touch(self, name: str) -> None:
        """Remember that it was used now."""

    def close(self) -> None: ...


class MemoryPages:
    """Pages in this process, gone with it."""

    lasts = False

    def __init__(self) -> None:
        self._pages: dict[str, tuple[np.ndarray, bytes]] = {}

    def names(self) -> list[tuple[str, int]]:
        return []

    def put(self, name: str, page: np.ndarray) -> None:
        self._pages[name] = page, digest(name, page)

    def get(self, name: str, page: np.ndarray) -> bool:
        kept, expected = self._pages.get(name, (page[:0], b""))
        return copied(kept, page) and digest(name, page) == expected

    def remove(self, name: str) -> None:
        self._pages.pop(name, None)

    def touch(self, name: str) -> None:
        """The order of use is asked for at start only, and then nothing is here."""

    def close(self) -> None:
        self._pages.clear()


def digest(name: str, page: np.ndarray) -> bytes:
    """sha256, 32 bytes. The name is part of it: a page under another's name does not match."""
    hashed = hashlib.sha256(f"{name} {page.nbytes}\n".encode())
    hashed.update(page.data)
    return hashed.digest()


def copied(source: np.ndarray, page: np.ndarray) -> bool:
    """Fill `page`, if it is as large as `source`."""
    if source.nbytes != page.nbytes:
        return False
    page[:] = source
    return True
