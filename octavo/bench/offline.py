"""A workload through `LLM`, in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from octavo.base.errors import EngineError
from octavo.bench.report import Timeline
from octavo.bench.workloads import Work
from octavo.engine.door import Door
from octavo.engine.engine import Engine


def run_together(engine: Engine, works: Sequence[Work], salt: str) -> list[Timeline]:
    """Send every request at once and step until all are answered.

    `salt` keeps runs apart: one finds nothing that an earlier one left in the prefix cache.

    Raises:
        RequestError: the model cannot take a request.
        EngineError: a request did not get all its tokens.
    """
    door = Door(engine.info, 0)
    requests = [door.request(w.prompt, w.params(), cache_salt=salt) for w in works]
    begin = time.perf_counter()
    lines = {r.request_id: Timeline(len(r.prompt_token_ids), begin, []) for r in requests}
    for request in requests:
        engine.add(request)
    while engine.has_work:
        deltas = engine.step()
        now = time.perf_counter()
        for delta in deltas:
            lines[delta.request_id].arrivals.append((now, len(delta.token_ids)))
    for line, work in zip(lines.values(), works, strict=True):
        if line.output_tokens != work.output_len:
            raise EngineError(f"{line.output_tokens} of {work.output_len} tokens were generated")
    return list(lines.values())


def run_in_turn(engine: Engine, works: Sequence[Work], salt: str) -> list[Timeline]:
    """One request after another: what a lone user sees."""
    return [line for work in works for line in run_together(engine, [work], salt)]
