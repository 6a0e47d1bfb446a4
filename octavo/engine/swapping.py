"""The swap tier that settings ask for."""

from __future__ import annotations

from pathlib import Path

from octavo.base.errors import ConfigError
from octavo.base.kv import KVGroup
from octavo.base.settings import CacheSettings
from octavo.base.units import parse_bytes
from octavo.engine.hardware import free_memory
from octavo.worker.swap import SwapStore
from octavo.worker.swap_files import PageFiles
from octavo.worker.swap_pages import MemoryPages


def swap_bytes(cache: CacheSettings, device: str, groups: tuple[KVGroup, ...]) -> int:
    """Raises ConfigError where the size is not understood, or the tier would be of no use."""
    if cache.kv_swap is None:
        if cache.kv_swap_dir is not None:
            raise ConfigError("kv_swap_dir needs kv_swap, the bytes it may hold: --kv-swap 8GiB")
        return 0
    if device != "cpu":
        raise ConfigError(f"kv_swap is for KV memory of the CPU, the device is {device}")
    if not cache.prefix_caching:
        raise ConfigError("kv_swap keeps what prefix_caching would find, which is off")
    if any(group.is_state for group in groups):
        raise ConfigError(
            "kv_swap keeps no recurrent states, and what it keeps of this model's attention is of "
            "no use without them; a larger --kv-memory keeps both"
        )
    return parse_bytes(cache.kv_swap, free_memory("cpu"))


def swap_store(cache: CacheSettings) -> SwapStore | None:
    """Raises ConfigError where a folder cannot be used."""
    if cache.kv_swap is None:
        return None
    folder = cache.kv_swap_dir
    return SwapStore(MemoryPages() if folder is None else PageFiles(Path(folder).expanduser()))
