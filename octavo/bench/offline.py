"""A workload through `LLM`, in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from octavo.base.request import Request
from octavo.bench.report import Timeline
from octavo.bench.workloads import Work
from octavo.engine.door import Door
from octavo.engine.engine import Engine


def run_together(engine: Engine, works: Sequence[Work]) -> list[Timeline]:
    """Send every request at once and step until all are answered."""
    door = Door(engine.info, 0)
    requests: list[Request] = [door.request(w.prompt, w.params()) for w in works]
    begin = time.perf_counter()
    lines = {r.request_id: Timeline(len(r.prompt_token_ids), begin, []) for r in requests}
    for request in requests:
        engine.add(request)
    while engine.has_work:
        deltas = engine.step()
        now = time.perf_counter()
        for delta in deltas:
            lines[delta.request_id].arrivals.append((now, len(delta.token_ids)))
    return list(lines.values())


def run_in_turn(engine: Engine, works: Sequence[Work]) -> list[Timeline]:
    """One request after another: what a lone user sees."""
    return [line for work in works for line in run_together(engine, [work])]
