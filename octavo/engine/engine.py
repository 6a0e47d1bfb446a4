"""The step loop's one step, and what may be done between steps. Knows a scheduler and an executor;
nothing of text or sockets.

    at once   plan n | submit n | finish n | update with n
    ahead     plan n | finish n - 1 | submit n | update with n - 1

Ahead, the device computes step n - 1 while step n is planned, and step n while the deltas of step
n - 1 are made and sent.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from octavo.base.errors import EngineError, RequestError
from octavo.base.log import logger
from octavo.base.output import Delta, EngineStats, OpCost
from octavo.base.plan import StepPlan, StepResult
from octavo.base.request import Request
from octavo.core.scheduler import Scheduler
from octavo.engine.executor import Executor
from octavo.engine.info import EngineInfo
from octavo.engine.updates import CurrentWeights, Source
from octavo.grammar.grammars import Grammars
from octavo.grammar.guide import Structure

log = logger("engine")
STRUCTURE_SECONDS = 0.02  # how long a step without rows waits for a structure that is being made

# What becomes of requests that have begun: they finish first while newcomers wait, or wait and are
# computed again, or end.
InFlight = Literal["finish", "recompute", "abort"]


@dataclass(slots=True)
class _Step:
    """On its way from plan to update."""

    plan: StepPlan
    is_sent: bool = False
    ticket: Any = None
    result: StepResult | None = None


class Engine:
    """Requests in, deltas out, one step at a time; `ahead`: while the next one is computed."""

    def __init__(
        self,
        info: EngineInfo,
        scheduler: Scheduler,
        executor: Executor,
        weights: CurrentWeights,
        ahead: bool = False,
        grammars: Grammars | None = None,
    ) -> None:
        self.info = info
        self._ahead = ahead
        self._steps: deque[_Step] = deque()  # planned, not updated
        self.is_asleep = False
        self._scheduler = scheduler
        self._executor = executor
        self._weights = weights
        self._outbox: list[Delta] = []  # what nobody has been given yet
        self._grammars = grammars
        self._unready: dict[str, tuple[Request, Future[Structure]]] = {}  # wait for a structure

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or bool(self._steps) or bool(self._unready)

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
        """Let a request wait: for its structure first, which is made aside, if it wants one."""
        making = self._grammars.begin(request.params) if self._grammars is not None else None
        if making is None or making.done():
            self._admit(request, making)
        else:
            self._unready[request.request_id] = request, making

    def abort(self, request_id: str, child: int | None = None) -> None:
        self._unready.pop(request_id, None)  # nobody has had a word of it: all of it goes
        self._scheduler.abort(request_id, child)

    def step(self) -> list[Delta]:
        if self.is_asleep:
            raise EngineError("the engine sleeps; wake it up first")
        self._admit_ready()
        before = list(self._steps)
        step = _Step(self._scheduler.schedule())
        self._steps.append(step)
        try:
            for one in before:
                self._finish(one)
            self._send(step)
            if not self._ahead or not step.plan.rows:
                self._finish(step)
        except BaseException:  # Ctrl-C: no step has written what its plan says
            self._interrupt()
            raise
        self._update()
        return self.take_deltas()

    def take_deltas(self) -> list[Delta]:
        """What steps have brought that nobody was given."""
        deltas, self._outbox = self._outbox, []
        return deltas

    def update_weights(self, source: Source, in_flight: InFlight) -> None:
        """Other weights in place of these, without a restart. No KV of the old ones is found by
        what is computed with the new; where these come back, it is found again.

        Raises:
            ModelError: a tensor cannot be read, is unknown, or is of another shape. Nothing has
                changed then.
        """
        weights = self._weights.replaced(source)
        if not self.is_asleep:
            self._quiet(in_flight)
            self._exchange(weights)
        self._weights = weights
        self._scheduler.begin_epoch(weights.epoch)

    def sleep(self, in_flight: InFlight) -> None:
        """Free weights and KV memory until `wake_up`; no step can be made meanwhile."""
        if self.is_asleep:
            return
        self._quiet(in_flight)
        emptied = self.reset_prefix_cache()
        assert emptied, "a sequence holds blocks"
        self._executor.unload()
        self.is_asleep = True

    def wake_up(self) -> None:
        """Load the weights that were in use."""
        if self.is_asleep:
            self._executor.load(self._weights.checkpoint)
            self.is_asleep = False

    def suspend(self) -> None:
        """Take the KV of every running request, as where memory is full: it waits, and computes
        again what is no longer found."""
        self._quiet("recompute")

    def reset_prefix_cache(self) -> bool:
        """Forget all cached KV; False, with nothing changed, where a request holds some."""
        emptied = self._scheduler.reset_prefix_cache()
        if emptied and not self.is_asleep:
            self._drain()
        return emptied

    def close(self) -> None:
        """End what works besides; nothing may be asked any more."""
        self._executor.close(self._scheduler.unsaved())

    def _admit_ready(self) -> None:
        """Those whose structure has been made. Where there is nothing else to do, wait for one."""
        if self._unready and not (self._scheduler.has_work or self._steps):
            waiting = [making for _, making in self._unready.values()]
            wait(waiting, STRUCTURE_SECONDS, return_when=FIRST_COMPLETED)
        for request, making in list(self._unready.values()):
            if making.done():
                del self._unready[request.request_id]
                self._admit(request, making)

    def _admit(self, request: Request, made: Future[Structure] | None) -> None:
        error = made.exception() if made is not None else None
        if error is None:
            return self._scheduler.add(request)
        if not isinstance(error, RequestError):
            log.error("a structure could not be made", exc_info=error)
        for index in range(request.params.n):
            ended = Delta(request.request_id, [], index, finish_reason="error", error=str(error))
            self._outbox.append(ended)

    def _send(self, step: _Step) -> None:
        step.is_sent = True
        step.ticket = self._executor.submit(step.plan)

    def _finish(self, step: _Step) -> None:
        step.result = self._executor.finish(step.ticket)
        if step.result.error is not None:  # what is planned behind it rests on it
            self._update()
            for later in self._steps:
                later.plan = _without_rows(later.plan)

    def _update(self) -> None:
        """Tell the scheduler of steps that have ended."""
        while self._steps and self._steps[0].result is not None:
            step = self._steps.popleft()
            assert step.result is not None
            self._outbox += self._scheduler.update(step.plan, step.result)

    def _interrupt(self) -> None:
        for step in self._steps:
            if not step.is_sent:  # what it moves, and who has gone, must be known
                step.plan = _without_rows(step.plan)
                self._send(step)
            step.result = step.result or StepResult(step.plan.step, [], error="interrupted")
        self._update()

    def _exchange(self, weights: CurrentWeights) -> None:
        """Load other weights; these again where that fails, with nothing cached."""
        try:
            self._executor.load(weights.checkpoint)
        except BaseException:
            self._executor.load(self._weights.checkpoint)
            self._scheduler.reset_prefix_cache()
            raise

    def _quiet(self, in_flight: InFlight) -> None:
        """No sequence holds blocks after this."""
        if in_flight == "finish":
            with self._scheduler.admitting("begun"):
                while self._scheduler.has_begun:
                    self._outbox = self.step()
        elif in_flight == "abort":
            self._outbox += self._scheduler.abort_begun()
        self._scheduler.suspend()
        self._drain()

    def _drain(self) -> None:
        """Have the swap tier follow, and wait for what comes back from it."""
        with self._scheduler.admitting("nobody"):
            self._outbox = self.step()
            while self._scheduler.is_loading:
                self._outbox = self.step()


def _without_rows(plan: StepPlan) -> StepPlan:
    """What is left of a plan whose rows cannot be computed."""
    return msgspec.structs.replace(plan, new=[], rows=[])
