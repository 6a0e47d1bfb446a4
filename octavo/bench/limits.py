"""`octavo bench limits`: what the machine can do at most, measured by the native library.

Other figures are read beside these: a step cannot be faster than its multiply-adds at the peak,
nor than its weights and KV read at the bandwidth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from octavo.base.errors import ConfigError
from octavo.bench.report import check_json, machine, write_json
from octavo.engine.hardware import num_cores
from octavo.native.interface import Native
from octavo.native.library import library

OPERANDS = ("f32", "bf16", "int8", "int16")  # of multiply-adds; a variant may lack one
CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL_CACHES = {2: 1 << 20, 3: 32 << 20}  # bytes by level, where the system does not tell
SMALLEST_DRAM, LARGEST_DRAM = 256 << 20, 1 << 30  # bytes to read for the memory's bandwidth


@dataclass(frozen=True)
class Limit:
    """One thing that was measured."""

    name: str
    threads: int
    rate: float  # a second
    unit: str  # "op", a multiply-add being two, or "B"


def run(options: argparse.Namespace) -> None:
    """Measure, print, and write a file if asked. Raises ConfigError for impossible options."""
    most = num_cores() if options.threads is None else options.threads
    if most < 1:
        raise ConfigError(f"--threads must be at least 1, got {most}")
    check_json(options.json)
    native = library()
    limits = []
    for limit in measure(native, thread_counts(most)):
        print(f"  {limit.name}, {_threads(limit.threads)}", file=sys.stderr)
        limits.append(limit)
    print(table(f"limits, {native.variant}", limits))
    report = {
        "variant": native.variant,
        "machine": machine(),
        "limits": [asdict(limit) for limit in limits],
    }
    write_json(options.json, report)


def thread_counts(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return [n for n in (1 << i for i in range(most.bit_length())) if n < most] + [most]


def measure(native: Native, threads: Sequence[int], seconds: float = 0.15) -> Iterator[Limit]:
    """Peaks and bandwidths for each number of threads, each measured for `seconds`."""
    for count in threads:
        for operand in OPERANDS:
            if rate := native.peak(operand, count, seconds):
                yield Limit(f"{operand} multiply-add", count, rate, "op")
        for name, size in buffers(count).items():
            yield Limit(f"read {name}", count, native.bandwidth(size, count, seconds), "B")


def buffers(threads: int) -> dict[str, int]:
    """Bytes to read, for all threads together, so that they come from a cache or from memory."""
    cache = cache_sizes()
    return {
        "L2": cache[2] // 2 * threads,
        "L3": cache[3] // 2,
        "DRAM": min(max(8 * cache[3], SMALLEST_DRAM), LARGEST_DRAM),
    }


def cache_sizes() -> dict[int, int]:
    """Bytes of the first core's L2 and L3."""
    found = {
        int((index / "level").read_text()): int((index / "size").read_text().strip()[:-1]) << 10
        for index in CPU_CACHES.glob("index*")
        if (index / "size").is_file()
    }
    return USUAL_CACHES | found


def table(title: str, limits: Sequence[Limit]) -> str:
    """A line for each limit, a column for each number of threads."""
    counts = sorted({limit.threads for limit in limits})
    names = list(dict.fromkeys((limit.name, limit.unit) for limit in limits))
    rates = {(limit.name, limit.threads): limit.rate for limit in limits}
    lines = [f"{title:<24}" + "".join(f"{_threads(n):>12}" for n in counts)]
    for name, unit in names:
        cells = "".join(f"{rates[name, n] / 1e9:>12.1f}" for n in counts)
        lines.append(f"{name:<24}{cells}  G{unit}/s")
    return "\n".join(lines)


def _threads(number: int) -> str:
    return f"{number} thread{'' if number == 1 else 's'}"
