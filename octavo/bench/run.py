"""`octavo bench`: run a workload several times, show and write the figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from octavo.base.errors import ConfigError
from octavo.base.flags import spell
from octavo.base.log import configure
from octavo.base.settings import EngineSettings
from octavo.bench.online import own_server, run_over_http
from octavo.bench.report import Figures, figures, machine, median, table
from octavo.bench.workloads import Work, warm_up, workload
from octavo.files.locate import locate


def run(options: argparse.Namespace, settings: EngineSettings) -> None:
    """Raises ConfigError where the workload or an option is impossible."""
    configure()
    works = workload(options.workload)
    if options.repeats < 1:
        raise ConfigError(f"--repeats must be at least 1, got {options.repeats}")
    if options.json and not Path(options.json).parent.is_dir():
        raise ConfigError(f"--json {options.json}: no such folder")
    if options.kind == "serve":
        repeats = asyncio.run(_online(options.url, settings, works, options.repeats))
    else:
        repeats = _offline(options.kind, settings, works, options.repeats)
    print(table(f"{options.kind} {options.workload}", repeats))
    if options.json:
        report = {
            "kind": options.kind,
            "workload": options.workload,
            "settings": asdict(settings),
            "machine": machine(),
            "median": asdict(median(repeats)),
            "runs": [asdict(r) for r in repeats],
        }
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _offline(
    kind: str, settings: EngineSettings, works: Sequence[Work], repeats: int
) -> list[Figures]:
    from octavo.bench.offline import run_in_turn, run_together  # these bring torch
    from octavo.engine.build import build_engine

    engine = build_engine(settings, locate(settings.model.model))
    print(engine.info.table, file=sys.stderr)
    go = run_in_turn if kind == "latency" else run_together
    run_together(engine, warm_up(), "warm-up")
    return [_shown(figures(go(engine, works, f"run {n}"))) for n in range(repeats)]


async def _online(
    url: str | None, settings: EngineSettings, works: Sequence[Work], repeats: int
) -> list[Figures]:
    if url is None:
        async with own_server(settings.model.model, spell(settings.options())) as own:
            return await _online(own, settings, works, repeats)
    session = uuid.uuid4().hex  # the server may have been measured before
    await run_over_http(url, warm_up(), session)
    runs = (await run_over_http(url, works, f"{session} {n}") for n in range(repeats))
    return [_shown(figures(run)) async for run in runs]


def _shown(result: Figures) -> Figures:
    """A run takes a while; say that one is done."""
    print(f"  {result.wall_s:.2f} s, {result.output_tokens_per_s:.1f} tok/s", file=sys.stderr)
    return result
