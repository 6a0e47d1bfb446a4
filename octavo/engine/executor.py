"""Carries plans to where they are computed, and results back."""

from __future__ import annotations

from typing import Any, Protocol

from octavo.base.log import logger
from octavo.base.output import OpCost
from octavo.base.plan import Move, StepPlan, StepResult
from octavo.weights.checkpoint import Checkpoint
from octavo.worker.observer import Observer
from octavo.worker.worker import Ticket, Worker

log = logger("executor")


class Executor(Protocol):
    """`submit` starts a step, `finish` draws its tokens; work of the CPU fits in between."""

    def submit(self, plan: StepPlan) -> Any: ...
    def finish(self, ticket: Any) -> StepResult: ...
    def costs(self) -> list[OpCost]: ...
    def load(self, checkpoint: Checkpoint) -> None:
        """Weights in the place of others, or after `unload`."""

    def unload(self) -> None:
        """Free weights and KV memory."""

    def close(self, unsaved: list[Move]) -> None:
        """The last call; blocks that a swap tier may keep for another process."""


class InProcessExecutor:
    """One rank, in this process. A step that fails is a result that says so."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def costs(self) -> list[OpCost]:
        return self._worker.costs()

    def load(self, checkpoint: Checkpoint) -> None:
        self._worker.load(checkpoint)

    def unload(self) -> None:
        self._worker.unload()

    def close(self, unsaved: list[Move]) -> None:
        self._worker.close(unsaved)

    def submit(self, plan: StepPlan) -> Ticket | StepResult:
        try:
            return self._worker.forward(plan)
        except Exception as error:  # whatever model code does costs this step, not the engine
            return _failed(plan.step, error)

    def finish(self, ticket: Ticket | StepResult) -> StepResult:
        if isinstance(ticket, StepResult):
            return ticket
        try:
            return self._worker.sample(ticket)
        except Exception as error:  # as above
            return _failed(ticket.step, error)


class ObservedExecutor(InProcessExecutor):
    """The same, with somebody who watches."""

    def __init__(self, worker: Worker, observer: Observer) -> None:
        super().__init__(worker)
        self._observer = observer

    def submit(self, plan: StepPlan) -> Ticket | StepResult:
        self._observer.begin(plan)
        return super().submit(plan)


def _failed(step: int, error: Exception) -> StepResult:
    log.error("step %d failed", step, exc_info=error)
    return StepResult(step, [], error=f"{type(error).__name__} while computing")
