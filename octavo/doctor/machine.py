"""`octavo doctor`: what this machine has, and what Octavo makes of it."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from octavo import __version__
from octavo.base.errors import ConfigError
from octavo.base.units import show_bytes
from octavo.engine.hardware import (
    cpu_model,
    cuda_devices,
    free_memory,
    has_gpu,
    huge_pages,
    num_cores,
)
from octavo.files.short_names import cache_folder
from octavo.native.library import VARIANTS, built_variants, library


def examine() -> int:
    """Print the findings. The exit code: 1 where the native library cannot run."""
    findings, runs = machine()
    for name, finding in findings.items():
        print(f"{name:<12}{finding}")
    return 0 if runs else 1


def machine() -> tuple[dict[str, str], bool]:
    """What there is, by name, and whether the native library runs."""
    native, runs = _native()
    findings = {
        "Octavo": __version__,
        "Python": f"{platform.python_version()}, {sys.executable}",
        "CPU": f"{cpu_model()}, {_count(num_cores(), 'core')} usable",
        "memory": f"{show_bytes(free_memory('cpu'))} free",
        "huge pages": _huge_pages(),
        "built": ", ".join(built_variants()) or "nothing",
        "native": native,
        "PyTorch": _torch(),
        "CUDA": _cuda(),
        "cache": _cache(cache_folder()),
    }
    return findings, runs


def _native() -> tuple[str, bool]:
    """Which variant is taken and why no better one, and whether there is any."""
    try:
        taken = library()
    except (ConfigError, ImportError) as error:
        return f"cannot run: {error}", False
    runs = taken.cpu_variants()
    better = VARIANTS[VARIANTS.index(taken.variant) + 1 :]
    why = [f"not {v}: {'not built' if v in runs else 'this CPU lacks it'}" for v in better]
    return "; ".join([taken.variant, *why]), True


def _huge_pages() -> str:
    setting = huge_pages()
    advice = "; where `always` or `madvise`, weights are read faster"
    return setting + advice if setting == "never" else setting


def _torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "not installed; only CUDA and models without native kernels need it"


def _cuda() -> str:
    devices = cuda_devices()
    if not devices and has_gpu():
        return "there is a GPU, but no PyTorch that can use it: pip install 'octavo[torch]'"
    return ", ".join(devices) or "no device"


def _cache(folder: Path) -> str:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{folder}, {_count(len(sizes), 'file')}, {show_bytes(sum(sizes))}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
