"""The most memory that this process and those it started have held."""

from __future__ import annotations

from pathlib import Path

import psutil


def peak_rss_mb() -> float:
    """Each process's own peak, added up, in MiB; pages that processes share count in each."""
    here = psutil.Process()
    processes = [here, *here.children(recursive=True)]
    return sum(_peak(process) for process in processes) / 2**20


def _peak(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)
