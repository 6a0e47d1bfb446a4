"""What the machine has: devices and free memory."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from pathlib import Path

import psutil

from octavo.base.errors import ConfigError

CGROUP = Path("/sys/fs/cgroup")
CPUINFO = Path("/proc/cpuinfo")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
DEV = Path("/dev")
GPU_FILES = ("nvidia[0-9]*", "dxg", "kfd")  # of NVIDIA's driver, Windows' for Linux, and AMD's


def pick_device(wanted: str) -> str:
    """ "auto" is CUDA where a GPU can be used, else the CPU.

    Raises:
        ConfigError: CUDA is wanted and cannot be used.
    """
    if wanted == "cpu" or (wanted == "auto" and not (find_spec("torch") and has_gpu())):
        return "cpu"
    require_torch("device cuda")
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise ConfigError("device cuda: PyTorch finds no CUDA device, or is a build for CPUs")
    return "cpu"


def require_torch(what: str) -> None:
    """Raises ConfigError where PyTorch, an extra, is not installed; `what` is what needs it."""
    if find_spec("torch") is None:
        raise ConfigError(f"{what} needs PyTorch: pip install 'octavo[torch]'")


def require_transformers(what: str) -> None:
    """Raises ConfigError where Transformers, an extra, is not installed; `what` needs it."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise ConfigError(f"{what} needs Hugging Face Transformers: pip install 'octavo[torch]'")


def has_gpu() -> bool:
    """Whether the machine has a GPU that PyTorch may be able to use; asked without importing it,
    which takes a second."""
    return any(path for name in GPU_FILES for path in DEV.glob(name))


def cuda_devices() -> list[str]:
    """Names of those that PyTorch can use."""
    if not (find_spec("torch") and has_gpu()):
        return []
    import torch

    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def cpu_model() -> str:
    lines = CPUINFO.read_text().splitlines() if CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def cpu_flags() -> frozenset[str]:
    """What the CPU can do, in the kernel's words: "avx2", "bf16"..."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.is_file() else []
    pairs = (line.partition(":") for line in lines)
    found = (rest for name, _, rest in pairs if name.strip() in ("flags", "Features"))
    return frozenset(next(found, "").split())


def huge_pages() -> str:
    """When the kernel backs memory with huge pages: "always", "madvise" (where asked) or "never";
    "unknown" where it does not say."""
    words = HUGE_PAGES.read_text().split() if HUGE_PAGES.is_file() else []
    return next((word.strip("[]") for word in words if word.startswith("[")), "unknown")


def num_cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fast_dtypes(device: str, computed_by: str) -> frozenset[str]:
    """Dtypes that `device` multiplies fast. PyTorch emulates the others on a CPU, many times
    slower; the native kernels read every one of them at full speed."""
    if device != "cpu" or computed_by == "native":
        return frozenset({"float32", "float16", "bfloat16"})
    native = any(flag in cpu_flags() for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    return frozenset({"float32", "bfloat16"} if native else {"float32"})


def free_memory(device: str) -> int:
    """Bytes that can be allocated on `device` now; within a container, what its limit leaves."""
    if device != "cpu":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return min(int(psutil.virtual_memory().available), _cgroup_room())


def _cgroup_room() -> int:
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    except OSError:
        return 2**63
    if limit == "max":
        return 2**63
    cached = int(stat.get("inactive_file", 0))  # of files, given back when memory is wanted
    return max(0, int(limit) - used + cached)
