"""What is kept for the next start is there whole, or not at all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from octavo.native.pack_cache import PackCache


class FullDisk:
    """A tensor that the disk has no room for."""

    nbytes = 4

    @property
    def data(self) -> Any:
        raise OSError(28, "No space left on device")


def tensor(*values: int) -> Any:
    return SimpleNamespace(nbytes=len(values), data=np.array(values, np.uint8))


def test_kept_bytes_come_back(tmp_path: Path) -> None:
    cache, found = PackCache(tmp_path, "a", {}), {"x": tensor(0, 0), "y": tensor(0)}
    assert not cache.load(found)
    cache.keep({"y": tensor(3), "x": tensor(1, 2)})
    assert cache.load(found) and [*found["x"].data, *found["y"].data] == [1, 2, 3]
    assert not PackCache(tmp_path, "b", {}).load(found)


def test_a_disk_that_fills_up_keeps_nothing(tmp_path: Path) -> None:
    PackCache(tmp_path, "a", {}).keep({"x": tensor(1), "y": FullDisk()})
    assert not list(tmp_path.iterdir())
