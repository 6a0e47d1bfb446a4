"""Bytes and counts as people write them."""

from __future__ import annotations

import re

from octavo.base.errors import ConfigError

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str, available: int) -> int:
    """Bytes meant by "2GiB", "512MiB", "1000000" or a share of `available` like "50%".

    Raises:
        ConfigError: it is none of these, or not positive.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*|%)\s*", text)
    if match is None or match[2].upper() not in (*_UNITS, "%"):
        raise ConfigError(f"{text!r} is no amount of memory; write 2GiB, 512MiB or 50%")
    number = float(match[1])
    if match[2] == "%" and number > 100:
        raise ConfigError(f"{text!r} is more than all the memory")
    scale = available / 100 if match[2] == "%" else _UNITS[match[2].upper()]
    result = int(number * scale)
    if result <= 0:
        raise ConfigError(f"{text!r} must be more than nothing")
    return result


def show_bytes(count: float) -> str:
    """1536 -> "1.50 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:,.2f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
