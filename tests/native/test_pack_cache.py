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


def test_files_of_another_layout_go_when_one_is_kept(tmp_path: Path) -> None:
    for name in ("0123.packed", "0123.1.packed", "notes"):
        (tmp_path / name).touch()
    PackCache(tmp_path, "a", {}).keep({"x": tensor(1)})
    PackCache(tmp_path, "b", {}).keep({"x": tensor(2)})
    assert len([*tmp_path.glob("*.packed")]) == 2
    assert (tmp_path / "notes").exists()
    assert PackCache(tmp_path, "a", {}).load({"x": tensor(0)})
