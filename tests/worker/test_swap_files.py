"""Pages as files: damage is seen, the folder is its owner's alone, a crash leaves nothing half."""

from __future__ import annotations

import errno
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from swapping import SIZE, A, B, C, found, page

from octavo.base.errors import ConfigError
from octavo.worker import swap_files
from octavo.worker.swap import SwapStore
from octavo.worker.swap_files import HEADER, PageFiles


@contextmanager
def opened(folder: Path) -> Iterator[SwapStore]:
    store = SwapStore(PageFiles(folder))
    yield store
    store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With pages A and B in it."""
    folder = tmp_path / "made" / "swap"
    with opened(folder) as store:
        store.save(A, page(1))
        store.save(B, page(2))
    return folder


def file_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.page"


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def test_a_restart_finds_all_in_the_order_of_last_use(folder: Path) -> None:
    with opened(folder) as store:
        assert store.names() == [(A, SIZE), (B, SIZE)]
        store.save(C, page(3))
        assert found(store, A, 1)
    with opened(folder) as store:
        assert store.names() == [(B, SIZE), (C, SIZE), (A, SIZE)]
        assert found(store, A, 1) and found(store, B, 2) and found(store, C, 3)


def test_the_order_is_not_left_to_the_coarse_clock_of_the_kernel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time_ns=iter([10**9 + 2, 10**9 + 1]).__next__)
    with monkeypatch.context() as patch, opened(folder) as store:
        patch.setattr(swap_files, "time", clock)
        store.save(A, page(1))
        store.save(C, page(3))
    with opened(folder) as store:
        assert [name for name, _ in store.names()] == [C, A, B]


def test_every_byte_of_the_header_counts(folder: Path) -> None:
    pages, target = PageFiles(folder), np.empty(SIZE, np.uint8)
    for at in range(HEADER.size + len(A)):
        flip(file_of(folder, A), at)
        assert not pages.get(A, target), at
        flip(file_of(folder, A), at)
    assert pages.get(A, target) and np.array_equal(target, page(1))
    pages.close()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "first byte of the page": lambda file: flip(file, HEADER.size + len(A)),
    "last byte of the page": lambda file: flip(file, -1),
    "truncated": lambda file: os.truncate(file, file.stat().st_size - 1),
    "empty": lambda file: os.truncate(file, 0),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "another name's": lambda file: shutil.copy(file_of(file.parent, B), file),
    "deleted": lambda file: file.unlink(),
    "a link": lambda file: file.symlink_to(file.rename(file.with_suffix(".moved"))),
}


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("running", [True, False])
def test_a_damaged_page_is_not_found_and_goes(
    what: str, running: bool, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if not running:
        DAMAGES[what](file_of(folder, A))
    with opened(folder) as store:
        if running:
            DAMAGES[what](file_of(folder, A))
        assert not found(store, A, 1)
        assert found(store, B, 2) and not found(store, A, 1)
    with opened(folder) as store:
        assert store.names() == [(B, SIZE)]
    assert not file_of(folder, A).is_symlink() and not file_of(folder, A).exists()
    assert len(caplog.records) <= 1


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A write fails in its midst, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_midway_leaves_nothing(folder: Path) -> None:
    pages, large = PageFiles(folder), page(3, 3 * 2**20)
    with largest_file(2**20), pytest.raises(OSError, match="File too large"):
        pages.put(A, large)
    assert {file.name for file in folder.iterdir()} == {f"{A}.page", f"{B}.page", "octavo.lock"}
    pages.put(A, large)
    target = np.empty_like(large)
    assert pages.get(A, target) and np.array_equal(target, large)
    pages.close()


def test_a_full_disk_costs_one_warning_and_what_had_the_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, opened(folder) as store:
        patch.setattr(os, "fchmod", full)
        store.save(A, page(3))
        store.save(C, page(3))
    assert store.dropped == 2
    [warning] = caplog.records
    assert "No space left on device" in warning.getMessage()
    with opened(folder) as store:
        assert store.names() == [(B, SIZE)] and found(store, B, 2)


def test_a_folder_that_vanishes_is_no_error(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(folder) as store:
        shutil.rmtree(folder)
        for name in (A, B, C):
            store.save(name, page(3))
            store.discard(name)
            store.save(name, page(3))
        time.sleep(0.1)
        assert not any(found(store, name, 3) for name in (A, B, C))
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    assert 1 <= len(caplog.records) <= 2


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_folder_that_became_unwritable_still_gives_what_it_has(folder: Path) -> None:
    with opened(folder) as store:
        folder.chmod(0o500)
        store.save(C, page(3))
        store.discard(B)
        assert found(store, A, 1) and not found(store, B, 2)
    assert store.dropped == 1
    folder.chmod(0o700)


@pytest.mark.parametrize("umask", [0o000, 0o277])
def test_only_the_owner_can_open_anything(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with opened(tmp_path / "swap") as store:
            store.save(A, page(1))
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "swap").iterdir()}
    assert modes == {f"{A}.page": 0o600, "octavo.lock": 0o600}
    assert (tmp_path / "swap").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o750, 0o720, 0o704, 0o702, 0o711])
def test_a_folder_open_to_others_is_refused(mode: int, folder: Path) -> None:
    folder.chmod(mode)
    with pytest.raises(ConfigError, match=f"run: chmod 700 {folder}"):
        PageFiles(folder)
    folder.chmod(0o700)
    PageFiles(folder).close()


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        PageFiles(folder)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no folder"):
        PageFiles(tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot be used: File exists: "):
        PageFiles(tmp_path / "file" / "swap")


def test_other_files_in_the_folder_are_let_be(folder: Path) -> None:
    for name in ("notes.txt", "README.page", "c0ffee"):
        (folder / name).touch()
    with opened(folder) as store:
        assert store.names() == [(A, SIZE), (B, SIZE)]
    assert len(list(folder.iterdir())) == 6


def test_a_folder_in_use_is_refused_until_it_is_closed(folder: Path) -> None:
    with opened(folder), pytest.raises(ConfigError, match="in use by another process"):
        PageFiles(folder)
    PageFiles(folder).close()


KILLED = """
import sys, numpy as np
from pathlib import Path
from octavo.worker import swap_files
from octavo.worker.swap import SwapStore
from octavo.worker.swap_files import PageFiles
store, size = SwapStore(PageFiles(Path(sys.argv[1]))), int(sys.argv[2])
print("open", flush=True)
for i in range(10**9):
    store.save(f"{i % 50:x}-0", np.full(size, i % 50, np.uint8))
"""


def test_a_killed_process_leaves_whole_pages_and_no_lock(tmp_path: Path) -> None:
    size, folder = 2**18, tmp_path / "swap"
    for delay in (0.02, 0.05, 0.1):
        command = [sys.executable, "-c", KILLED, str(folder), str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "open\n"
            with pytest.raises(ConfigError, match="in use by another process"):
                PageFiles(folder)
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        pages, target = PageFiles(folder), np.empty(size, np.uint8)
        for name, bytes_of_page in pages.names():
            assert bytes_of_page == size and pages.get(name, target)
            assert (target == int(name.removesuffix("-0"), 16)).all()
        assert len(list(folder.iterdir())) == len(pages.names()) + 1
        pages.close()
    assert pages.names()


def test_a_half_written_file_is_removed_at_start(folder: Path) -> None:
    (folder / "octavo.part").write_bytes(b"half")
    PageFiles(folder).close()
    assert not (folder / "octavo.part").exists()
