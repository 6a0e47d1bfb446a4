"""The step loop's one step. Knows a scheduler and an executor; nothing of text or sockets."""

from __future__ import annotations

from octavo.base.output import Delta, EngineStats, OpCost
from octavo.base.plan import StepResult
from octavo.base.request import Request
from octavo.core.scheduler import Scheduler
from octavo.engine.executor import Executor
from octavo.engine.info import EngineInfo


class Engine:
    """Requests in, deltas out, one step at a time."""

    def __init__(self, info: EngineInfo, scheduler: Scheduler, executor: Executor) -> None:
        self.info = info
        self._scheduler = scheduler
        self._executor = executor

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    @property
    def stats(self) -> EngineStats:
        return self._scheduler.stats()

    @property
    def costs(self) -> list[OpCost]:
        """Where time went in the device's ops, since the model was loaded."""
        return self._executor.costs()

    def add(self, request: Request) -> None:
        self._scheduler.add(request)

    def abort(self, request_id: str, child: int | None = None) -> None:
        self._scheduler.abort(request_id, child)

    def close(self) -> None:
        """End what works besides; nothing may be asked any more."""
        self._executor.close(self._scheduler.unsaved())

    def step(self) -> list[Delta]:
        plan = self._scheduler.schedule()
        try:
            ticket = self._executor.submit(plan)
            result = self._executor.finish(ticket)
        except BaseException:  # Ctrl-C: the step has not written what the plan says
            self._scheduler.update(plan, StepResult(plan.step, [], error="interrupted"))
            raise
        return self._scheduler.update(plan, result)
