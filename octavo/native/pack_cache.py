"""Packed weights that took long to make, kept in a file for the next start.

The layout of packed weights is the same for every instruction set, so one file serves them all.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from octavo.base.log import logger
from octavo.native.interface import Packed

LAYOUT = 2  # of csrc/packed.h; another number, and old files are of no use

log = logger("weights")


class PackCache:
    """One file: the tensors' bytes, one after another in order of name."""

    def __init__(self, folder: Path, identity: str, formats: Mapping[str, str]) -> None:
        said = json.dumps([identity, sorted(formats.items())])
        digest = hashlib.sha256(said.encode()).hexdigest()[:32]
        self._path = folder / f"{digest}.{LAYOUT}.packed"

    def load(self, tensors: Mapping[str, Packed]) -> bool:
        """Fill every tensor, if they are kept here."""
        size = sum(tensor.nbytes for tensor in tensors.values())
        if not self._path.is_file() or self._path.stat().st_size != size:
            return False
        with self._path.open("rb", buffering=0) as file:
            return all(_read(file, tensors[name].data.data) for name in sorted(tensors))

    def keep(self, tensors: Mapping[str, Packed]) -> None:
        """For next time. A disk that is full or not ours costs a warning, no more."""
        part = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                for name in sorted(tensors):
                    file.write(tensors[name].data.data)
            part.replace(self._path)
            self._clear_old()
        except OSError as error:
            log.warning("packed weights are not kept for the next start: %s", error)
            with suppress(OSError):
                part.unlink()

    def _clear_old(self) -> None:
        """Files of other layouts would only fill the disk."""
        for file in self._path.parent.glob("*.packed"):
            if not file.name.endswith(f".{LAYOUT}.packed"):
                file.unlink(missing_ok=True)


def _read(file: io.FileIO, memory: memoryview) -> bool:
    done = 0
    while done < len(memory) and (count := file.readinto(memory[done:])):
        done += count
    return done == len(memory)
