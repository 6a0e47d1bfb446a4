"""The native library: which variants of it are built, which this CPU can run, and the best."""

from __future__ import annotations

import hashlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from octavo.base.errors import ConfigError
from octavo.native.interface import Native

VARIANTS = ("portable", "avx2", "avx512", "avx512bf16")  # of CMakeLists.txt, the best last


def built_variants() -> list[str]:
    """Variants that are installed, the best last."""
    return [variant for variant in VARIANTS if find_spec(f"octavo._native_{variant}")]


def usable_variants() -> list[str]:
    """Built variants that this CPU can run, the best last.

    Only the portable one is sure to run here, so it is the one that is asked.
    """
    built = built_variants()
    if "portable" not in built:
        return []
    can_run = _load("portable").cpu_variants()
    return [variant for variant in built if variant in can_run]


def library(variant: str | None = None) -> Native:
    """The best variant that the CPU runs, or the one named.

    Raises:
        ConfigError: none is built, or the named one is not built or not for this CPU.
    """
    usable = usable_variants()
    if not usable:
        raise ConfigError("the native library is not built; `make install` builds it")
    if variant is not None and variant not in usable:
        why = "not one that this CPU runs" if variant in built_variants() else "not built"
        raise ConfigError(f"native variant {variant!r} is {why}; there are {', '.join(usable)}")
    return _load(variant or usable[-1])


def build_digest(variant: str) -> str:
    """sha256 of a variant's code, hexadecimal."""
    found = find_spec(f"octavo._native_{variant}")
    assert found is not None and found.origin is not None, variant
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()


def _load(variant: str) -> Native:
    return cast(Native, import_module(f"octavo._native_{variant}"))
