"""Times of tokens -> figures -> a table. Knows no engine and no socket."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from octavo.base.errors import ConfigError


@dataclass(frozen=True)
class Timeline:
    """One request: when it was sent and when tokens came, in seconds of one clock."""

    prompt_tokens: int
    sent: float
    arrivals: list[tuple[float, int]]  # (time, tokens that came)

    @property
    def output_tokens(self) -> int:
        return sum(count for _, count in self.arrivals)

    @property
    def ttft(self) -> float:
        return self.arrivals[0][0] - self.sent

    @property
    def itls(self) -> list[float]:
        """Inter-token latencies; tokens that came together are evenly spread."""
        times = [self.arrivals[0][0]]
        gaps = []
        for time, count in self.arrivals[1:]:
            gaps += [(time - times[-1]) / count] * count
            times.append(time)
        return gaps


@dataclass(frozen=True)
class Figures:
    """One run of a workload. Seconds, milliseconds and tokens."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    wall_s: float
    output_tok_s: float
    total_tok_s: float
    ttft_ms: float  # time to the first token, median over requests
    ttft_ms_p99: float
    decode_ms_per_token: float  # between tokens of a request, median
    decode_ms_p99: float


def figures(runs: Sequence[Timeline]) -> Figures:
    wall = max(r.arrivals[-1][0] for r in runs) - min(r.sent for r in runs)
    prompt = sum(r.prompt_tokens for r in runs)
    output = sum(r.output_tokens for r in runs)
    ttfts = [1e3 * r.ttft for r in runs]
    itls = [1e3 * gap for r in runs for gap in r.itls] or [0.0]
    return Figures(
        requests=len(runs),
        prompt_tokens=prompt,
        output_tokens=output,
        wall_s=wall,
        output_tok_s=output / wall,
        total_tok_s=(prompt + output) / wall,
        ttft_ms=_percentile(ttfts, 50),
        ttft_ms_p99=_percentile(ttfts, 99),
        decode_ms_per_token=_percentile(itls, 50),
        decode_ms_p99=_percentile(itls, 99),
    )


def median(repeats: Sequence[Figures]) -> Figures:
    """Field by field."""
    fields = zip(*(asdict(f).items() for f in repeats), strict=True)
    return Figures(**{column[0][0]: statistics.median(v for _, v in column) for column in fields})


def table(name: str, repeats: Sequence[Figures]) -> str:
    """Median and range of every figure, one a line."""
    lines = [f"{name}: {len(repeats)} runs", f"{'':24}{'median':>12}{'min':>12}{'max':>12}"]
    middle = asdict(median(repeats))
    for field, value in middle.items():
        values = [asdict(f)[field] for f in repeats]
        digits = 0 if isinstance(values[0], int) else 2
        cells = "".join(f"{v:>12,.{digits}f}" for v in (value, min(values), max(values)))
        lines.append(f"{field:24}{cells}")
    return "\n".join(lines)


def check_json(file: str | None) -> None:
    """Before anything is measured. Raises ConfigError where `file` could not be written."""
    if file and not Path(file).parent.is_dir():
        raise ConfigError(f"--json {file}: no such folder")


def check_repeats(repeats: int) -> None:
    """Raises ConfigError where nothing would be measured."""
    if repeats < 1:
        raise ConfigError(f"--repeats must be at least 1, got {repeats}")


def write_json(file: str | None, report: Any) -> None:
    """Into `file`, if there is one."""
    if file:
        Path(file).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """What a figure means nothing without."""
    packages = [name for name in ("octavo", "torch", "numpy") if find_spec(name)]
    return {
        "cpu": _cpu_name(),
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: version(name) for name in packages},
    }


def _percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the closest ranks."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low, part = int(at), at - int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] * (1 - part) + ordered[high] * part


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
