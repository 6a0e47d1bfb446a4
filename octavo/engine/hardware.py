"""What the machine has: devices and free memory."""

from __future__ import annotations

from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")


def pick_device(wanted: str) -> str:
    """ "auto" is CUDA where a GPU can be used, else the CPU."""
    if wanted != "auto":
        return wanted
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def free_memory(device: str) -> int:
    """Bytes that can be allocated on `device` now; within a container, what its limit leaves."""
    if device != "cpu":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return min(int(psutil.virtual_memory().available), _cgroup_room())


def _cgroup_room() -> int:
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = (CGROUP / "memory.current").read_text().strip()
    except OSError:
        return 2**63
    return 2**63 if limit == "max" else max(0, int(limit) - int(used))
