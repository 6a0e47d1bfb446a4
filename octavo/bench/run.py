"""`octavo bench`: run workloads several times, show and write the figures."""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from octavo.base.errors import ConfigError
from octavo.base.flags import spell
from octavo.base.log import configure
from octavo.base.settings import EngineSettings
from octavo.bench import roofline
from octavo.bench.memory import peak_rss_mb
from octavo.bench.offline import run_in_turn, run_together
from octavo.bench.online import own_server, run_over_http
from octavo.bench.report import (
    Figures,
    check_json,
    check_repeats,
    figures,
    machine,
    median,
    table,
    write_json,
)
from octavo.bench.workloads import Work, warm_up, workload
from octavo.engine.build import build_engine
from octavo.engine.engine import Engine
from octavo.engine.resolved import num_threads
from octavo.files.locate import locate

Report = dict[str, Any]


def run(options: argparse.Namespace, settings: EngineSettings) -> None:
    """Raises ConfigError where a workload or an option is impossible."""
    configure()
    works = {name: workload(name) for name in options.workload or [options.default_workload]}
    check_repeats(options.repeats)
    check_json(options.json)
    if options.kind == "serve":
        reports = asyncio.run(_online(options, settings, works))
    else:
        reports = _offline(options, settings, works)
    write_json(options.json, reports)


def profile(options: argparse.Namespace, settings: EngineSettings) -> None:
    """One run of a workload, op by op."""
    configure()
    works = workload(options.workload)
    engine = prepared_engine(settings)
    before = engine.costs
    if not before:
        raise ConfigError("profile counts the ops of the native path; the device here has another")
    result = figures(run_together(engine, works, "profile"))
    costs = roofline.since(before, engine.costs)
    print(roofline.table(costs, roofline.Limits.measure(num_threads(settings))))
    ops = sum(cost.seconds for cost in costs)
    print(f"{ops:.2f} s in ops of {result.wall_s:.2f} s; the rest decides, draws and waits")


def _offline(
    options: argparse.Namespace, settings: EngineSettings, works: dict[str, list[Work]]
) -> list[Report]:
    engine = prepared_engine(settings)
    go = run_in_turn if options.kind == "latency" else run_together
    limits = roofline.Limits.measure(num_threads(settings)) if engine.costs else None
    reports = []
    for name, work in works.items():
        before = engine.costs
        repeats = [_shown(figures(go(engine, work, f"{name} {n}"))) for n in range(options.repeats)]
        print(table(f"{options.kind} {name}", repeats))
        if limits is not None:
            print(roofline.line(roofline.since(before, engine.costs), limits))
        said = {"quantization": engine.info.weight_format, "runner": engine.info.runner}
        reports.append(_report(options, settings, name, repeats) | said)
    return reports


def prepared_engine(settings: EngineSettings) -> Engine:
    """Loaded, told of, and warm."""
    model = settings.model
    engine = build_engine(settings, locate(model.model, code=model.trust_remote_code))
    print(engine.info.table, file=sys.stderr)
    run_together(engine, warm_up(), "warm-up")
    return engine


async def _online(
    options: argparse.Namespace, settings: EngineSettings, works: dict[str, list[Work]]
) -> list[Report]:
    if options.url is None:
        async with own_server(settings.model.model, spell(settings.options())) as own:
            options.url = own
            return await _online(options, settings, works)
    session = uuid.uuid4().hex  # the server may have been measured before
    await run_over_http(options.url, warm_up(), session)
    reports = []
    for name, work in works.items():
        runs = (
            await run_over_http(options.url, work, f"{session} {name} {n}")
            for n in range(options.repeats)
        )
        repeats = [_shown(figures(run)) async for run in runs]
        print(table(f"serve {name}", repeats))
        said = {"quantization": settings.model.quantization}
        reports.append(_report(options, settings, name, repeats) | said)
    return reports


def _report(
    options: argparse.Namespace, settings: EngineSettings, name: str, repeats: Sequence[Figures]
) -> Report:
    return {
        "model": settings.model.model,
        "workload": name,
        "kind": options.kind,
        **asdict(median(repeats)),
        "peak_rss_mb": peak_rss_mb(),
        "runs": [asdict(figure) for figure in repeats],
        "settings": asdict(settings),
        "machine": machine(),
    }


def _shown(result: Figures) -> Figures:
    """A run takes a while; say that one is done."""
    print(f"  {result.wall_s:.2f} s, {result.output_tok_s:.1f} tok/s", file=sys.stderr)
    return result
