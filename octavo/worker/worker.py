"""Computes plans on one rank. Knows sequences by id, their tokens and blocks; decides nothing."""

from __future__ import annotations

from typing import Any, Protocol

from octavo.base.kv import KVLayout
from octavo.base.output import OpCost
from octavo.base.plan import Copy, Sampled, StepPlan, StepResult
from octavo.sampling.rows import Drawn, SamplingRow
from octavo.worker.batch import Batch, build_batch
from octavo.worker.states import States


class Runner(Protocol):
    """A model on a device."""

    def copy(self, pool: int, sources: list[int], targets: list[int]) -> None:
        """Blocks of one pool, in all layers: every source is read before any target changes."""

    def forward(self, batch: Batch) -> Any:
        """Start a step; what it gives is only ever handed to `sample`."""

    def sample(self, logits: Any, rows: list[SamplingRow]) -> list[Drawn]:
        """End the step that `forward` started, and draw a token for each row; there may be none."""

    def costs(self) -> list[OpCost]:
        """By kind of op, since the model was loaded; empty where nobody counts."""


class Ticket:
    """A step under way."""

    def __init__(self, step: int, batch: Batch | None, logits: Any) -> None:
        self.step = step
        self.batch = batch
        self.logits = logits


class Worker:
    """States, batch arrays and a runner, put together."""

    def __init__(self, runner: Runner, layout: KVLayout) -> None:
        self._runner = runner
        self._block_size = layout.block_size
        self._num_groups = len(layout.groups)
        self._states = States(self._num_groups)

    def costs(self) -> list[OpCost]:
        return self._runner.costs()

    def forward(self, plan: StepPlan) -> Ticket:
        self._states.follow(plan)
        self._copy(plan.copies)
        if not plan.rows:
            return Ticket(plan.step, None, None)
        batch = build_batch(plan, self._states, self._block_size, self._num_groups)
        return Ticket(plan.step, batch, self._runner.forward(batch))

    def sample(self, ticket: Ticket) -> StepResult:
        if ticket.batch is None:
            return StepResult(ticket.step, [])
        drawn = self._runner.sample(ticket.logits, ticket.batch.sampling)
        result = StepResult(
            ticket.step,
            [_sampled(*who, d) for who, d in zip(ticket.batch.drawn_for, drawn, strict=True)],
        )
        self._states.learn(result)
        return result

    def _copy(self, copies: list[Copy]) -> None:
        for pool in {copy.pool for copy in copies}:
            mine = [copy for copy in copies if copy.pool == pool]
            self._runner.copy(pool, [c.source for c in mine], [c.target for c in mine])


def _sampled(sequence_id: int, child: int, drawn: Drawn) -> Sampled:
    if drawn.error is not None:
        return Sampled(sequence_id, child, [], error=drawn.error)
    logprobs = [drawn.logprobs] if drawn.logprobs else None
    return Sampled(sequence_id, child, [drawn.token_id], logprobs)
