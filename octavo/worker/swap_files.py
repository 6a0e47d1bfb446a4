"""Pages of KV memory as files, in a folder that only its owner can open."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from octavo.base.errors import ConfigError
from octavo.worker.swap_pages import NAME, digest

HEADER = struct.Struct("<8sIIQ32s")  # magic, version, bytes of name, bytes of page, digest
MAGIC = b"octavoKV"
VERSION = 1
SUFFIX = ".page"


class PageFiles:
    """One file a page: header, name, page. While it is open, no other process has the folder.

    A file is written under another name and then renamed: a process that dies leaves no half page.
    Nothing is forced to the disk; what a power cut spoils does not match its digest.

    Raises:
        ConfigError: the folder cannot be used, others can open it, or another process has it.
    """

    lasts = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._part = self._folder / "octavo.part"
        with _refusing(folder):
            _make_private(self._folder)
            self._lock = _lock(self._folder / "octavo.lock")
            self._part.unlink(missing_ok=True)
            self._names = self._scan()

    def names(self) -> list[tuple[str, int]]:
        return self._names

    def put(self, name: str, page: np.ndarray) -> None:
        try:
            with open(self._part, "wb", opener=_open_private) as file:
                os.fchmod(file.fileno(), 0o600)  # the umask may have taken more
                file.write(_header(name, page))
                file.write(page.data)
            self._part.replace(self._path(name))
        except OSError:
            with suppress(OSError):
                self._part.unlink()
            raise
        self.touch(name)

    def get(self, name: str, page: np.ndarray) -> bool:
        with open(self._path(name), "rb", opener=_open_private) as file:
            header = file.read(HEADER.size + len(name))
            file.readinto(page.data)  # if it is cut short, the digest will differ
            rest = file.read(1)
        return not rest and header == _header(name, page)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def touch(self, name: str) -> None:
        now = time.time_ns()  # the kernel's own stamp is a few milliseconds coarse
        os.utime(self._path(name), ns=(now, now))

    def close(self) -> None:
        os.close(self._lock)

    def _path(self, name: str) -> Path:
        return self._folder / (name + SUFFIX)

    def _scan(self) -> list[tuple[str, int]]:
        paths = [p for p in self._folder.glob(f"*{SUFFIX}") if NAME.fullmatch(p.stem)]
        files = sorted((p.lstat().st_mtime_ns, p.lstat().st_size, p.stem) for p in paths)
        sizes = [(name, size - HEADER.size - len(name)) for _, size, name in files]
        for name, size in sizes:
            if size <= 0:  # after a power cut
                self.remove(name)
        return [(name, size) for name, size in sizes if size > 0]


def _header(name: str, page: np.ndarray) -> bytes:
    """All that precedes the page in its file, the name last."""
    fields = HEADER.pack(MAGIC, VERSION, len(name), page.nbytes, digest(name, page))
    return fields + name.encode()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _make_private(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(0o700)
        folder.chmod(0o700)  # the umask may have taken more
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"--kv-swap-dir {folder} is no folder")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"--kv-swap-dir {folder} belongs to another user; name one of your own")
    if found.st_mode & 0o077:
        raise ConfigError(
            f"--kv-swap-dir {folder} is open to other users, and KV tells what was asked; "
            f"run: chmod 700 {shlex.quote(str(folder))}"
        )


def _lock(path: Path) -> int:
    """A descriptor that holds the lock until it is closed or the process ends."""
    descriptor = _open_private(str(path), os.O_RDWR | os.O_CREAT)
    try:
        os.fchmod(descriptor, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"--kv-swap-dir {path.parent} is in use by another process; give each its own"
        ) from None
    return descriptor


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"--kv-swap-dir {folder} cannot be used: {error.strerror}: {error.filename}"
        ) from error
