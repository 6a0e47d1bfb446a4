"""The step loop's one step, and what may be done between steps. Knows a scheduler and an executor;
nothing of text or sockets."""

from __future__ import annotations

from typing import Literal

from octavo.base.errors import EngineError
from octavo.base.output import Delta, EngineStats, OpCost
from octavo.base.plan import StepResult
from octavo.base.request import Request
from octavo.core.scheduler import Scheduler
from octavo.engine.executor import Executor
from octavo.engine.info import EngineInfo
from octavo.engine.updates import CurrentWeights, Source

# What becomes of requests that have begun: they finish first while newcomers wait, or wait and are
# computed again, or end.
InFlight = Literal["finish", "recompute", "abort"]


class Engine:
    """Requests in, deltas out, one step at a time."""

    def __init__(
        self, info: EngineInfo, scheduler: Scheduler, executor: Executor, weights: CurrentWeights
    ) -> None:
        self.info = info
        self.is_asleep = False
        self._scheduler = scheduler
        self._executor = executor
        self._weights = weights

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    @property
    def stats(self) -> EngineStats:
        return self._scheduler.stats()

    @property
    def epoch(self) -> str:
        """Says which weights compute: a digest of their content."""
        return self._weights.epoch

    @property
    def costs(self) -> list[OpCost]:
        """Where time went in the device's ops, since the model was loaded."""
        return self._executor.costs()

    def add(self, request: Request) -> None:
        self._scheduler.add(request)

    def abort(self, request_id: str, child: int | None = None) -> None:
        self._scheduler.abort(request_id, child)

    def step(self) -> list[Delta]:
        if self.is_asleep:
            raise EngineError("the engine sleeps; wake it up first")
        plan = self._scheduler.schedule()
        try:
            ticket = self._executor.submit(plan)
            result = self._executor.finish(ticket)
        except BaseException:  # Ctrl-C: the step has not written what the plan says
            self._scheduler.update(plan, StepResult(plan.step, [], error="interrupted"))
            raise
        return self._scheduler.update(plan, result)

    def update_weights(self, source: Source, in_flight: InFlight) -> list[Delta]:
        """Other weights in place of these, without a restart. No KV of the old ones is found by
        what is computed with the new; where these come back, it is found again.

        Returns the deltas of requests that had begun.

        Raises:
            ModelError: a tensor cannot be read, is unknown, or is of another shape. Nothing has
                changed then.
        """
        weights = self._weights.replaced(source)
        deltas = self._quiet(in_flight)
        if not self.is_asleep:
            self._executor.load(weights.checkpoint)
        self._weights = weights
        self._scheduler.begin_epoch(weights.epoch)
        return deltas

    def sleep(self, in_flight: InFlight) -> list[Delta]:
        """Free weights and KV memory until `wake_up`; requests may wait meanwhile.

        Returns the deltas of requests that had begun.
        """
        if self.is_asleep:
            return []
        deltas = self._quiet(in_flight)
        emptied = self._scheduler.reset_prefix_cache()
        assert emptied, "a sequence holds blocks"
        self._executor.unload()
        self.is_asleep = True
        return deltas

    def wake_up(self) -> list[Delta]:
        """Load the weights that were in use; there are no deltas."""
        if self.is_asleep:
            self._executor.load(self._weights.checkpoint)
            self.is_asleep = False
        return []

    def reset_prefix_cache(self) -> bool:
        """Forget all cached KV; False, with nothing changed, where a request holds some."""
        return self._scheduler.reset_prefix_cache()

    def close(self) -> None:
        """End what works besides; nothing may be asked any more."""
        self._executor.close(self._scheduler.unsaved())

    def _quiet(self, in_flight: InFlight) -> list[Delta]:
        """No sequence holds blocks after this."""
        deltas: list[Delta] = []
        if in_flight == "finish":
            with self._scheduler.admitting("begun"):
                while self._scheduler.has_begun:
                    deltas += self.step()
        elif in_flight == "abort":
            deltas += self._scheduler.abort_begun()
        self._scheduler.suspend()
        with self._scheduler.admitting("nobody"):
            while self._scheduler.is_loading:
                deltas += self.step()
        return deltas
