"""`octavo bench steps`: how a step grows with its rows, and with the tokens that a row sees."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from octavo.base.log import configure
from octavo.base.settings import EngineSettings
from octavo.bench.offline import run_together
from octavo.bench.report import check_json, check_repeats, figures, machine, write_json
from octavo.bench.run import prepared_engine
from octavo.bench.workloads import prompt
from octavo.engine.engine import Engine

CONTEXT = 64  # tokens of a prompt where rows are counted
STEPS = 16  # decoding ones, of which the median is taken
WIDTH = 50  # of the longest bar


@dataclass(frozen=True)
class Point:
    """A decoding step of `rows` rows that see `context` tokens each, and how long it took."""

    rows: int
    context: int
    ms: float


def run(options: argparse.Namespace, settings: EngineSettings) -> None:
    """Measure, draw, and write a file if asked."""
    configure()
    check_repeats(options.repeats)
    check_json(options.json)
    engine = prepared_engine(settings)
    by_rows = [
        measure(engine, rows, CONTEXT, options.repeats)
        for rows in powers(1, settings.scheduler.max_num_seqs)
    ]
    print(chart("rows", [(point.rows, point.ms) for point in by_rows]))
    most = engine.info.max_model_len - STEPS
    by_context = [measure(engine, 1, n, options.repeats) for n in powers(128, most)]
    print(chart("context", [(point.context, point.ms) for point in by_context]))
    points = [asdict(point) for point in by_rows + by_context]
    write_json(options.json, {"machine": machine(), "points": points})


def measure(engine: Engine, rows: int, context: int, repeats: int) -> Point:
    """The median over `repeats` runs of the median step."""
    steps = []
    for repeat in range(repeats):
        works = [prompt(row, context, STEPS) for row in range(rows)]
        runs = run_together(engine, works, f"{rows} {context} {repeat}")
        steps.append(figures(runs).decode_ms_per_token)
    return Point(rows, context, statistics.median(steps))


def powers(first: int, most: int) -> Iterator[int]:
    """first, 2 first, 4 first ... up to `most`."""
    while first <= most:
        yield first
        first *= 2


def chart(name: str, points: Sequence[tuple[int, float]]) -> str:
    """A bar for each point, and how well a line fits them all."""
    longest = max(ms for _, ms in points)
    lines = [f"{name:>8}{'ms':>9}"]
    for x, ms in points:
        lines.append(f"{x:>8}{ms:>9.2f}  " + "█" * max(1, round(WIDTH * ms / longest)))
    if len(points) > 1:
        slope, start = statistics.linear_regression(*zip(*points, strict=True))
        worst = max(abs(start + slope * x - ms) / ms for x, ms in points)
        lines.append(
            f"{start:.2f} ms + {slope:.4g} ms for each; the farthest point is {worst:.0%} off"
        )
    return "\n".join(lines)
