"""Computes plans on one rank. Knows sequences by id, their tokens and blocks; decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from octavo.base.kv import KVLayout
from octavo.base.output import OpCost
from octavo.base.plan import Copy, Move, Sampled, StepPlan, StepResult, TokenLogprobs, Told
from octavo.sampling.processors import NO_PROCESSORS, Processors
from octavo.sampling.rows import Drawn, SamplingRow
from octavo.speculative.proposer import Proposer
from octavo.weights.checkpoint import Checkpoint
from octavo.worker.batch import Batch, Wanted, build_batch, draft_rows
from octavo.worker.guiding import Guiding, Masks, masked
from octavo.worker.states import FindGuide, States
from octavo.worker.swap import SwapStore

# Of so many tokens of a row: which closes its structure in time, and where the answer is whole.
Judged = Callable[[int], tuple[int | None, list[bool] | None]]
LOAD_SECONDS = 0.05  # how long a step without rows waits for what is being loaded


class Runner(Protocol):
    """A model on a device."""

    def update(self, checkpoint: Checkpoint) -> None:
        """Other weights in the place of these; KV memory stays."""

    def copy(self, pool: int, sources: list[int], targets: list[int]) -> None:
        """Blocks of one pool, in all layers: every source is read before any target changes."""

    def pages(self, pool: int) -> np.ndarray:
        """uint8 [blocks, bytes], a view of KV memory that the CPU can reach."""

    def forward(self, batch: Batch) -> Any:
        """Start a step; what it gives, or rows of it by index, is only ever handed to `sample`."""

    def sample(
        self, logits: Any, rows: list[SamplingRow], processors: Processors = NO_PROCESSORS
    ) -> list[Drawn]:
        """End the step that `forward` started, and draw a token for each row; there may be none."""

    def costs(self) -> list[OpCost]:
        """By kind of op, since the model was loaded; empty where nobody counts."""


class _Work(NamedTuple):
    """Rows that are being computed."""

    batch: Batch
    logits: Any
    guiding: Guiding
    masks: Future[Masks] | None


class Ticket(NamedTuple):
    """A step under way."""

    step: int
    begun: float
    work: _Work | None = None


class Worker:
    """States, batch arrays and a runner, put together.

    Args:
        make: loads a runner like this one, weights and KV memory.
        swap: a swap tier.
        processors: of logits, by the names that requests use.
        draft: gives who proposes drafts beside a runner.
        guide: gives who follows an answer that is to have a structure.
    """

    def __init__(
        self,
        make: Callable[[Checkpoint], Runner],
        runner: Runner,
        layout: KVLayout,
        swap: SwapStore | None = None,
        processors: Processors = NO_PROCESSORS,
        draft: Callable[[Runner], Proposer | None] = lambda runner: None,
        guide: FindGuide | None = None,
    ) -> None:
        self._make = make
        self._runner = runner
        self._swap = swap
        self._processors = processors
        self._draft = draft
        self._proposer = draft(runner)
        self._block_size = layout.block_size
        self._num_groups = len(layout.groups)
        whole = [g for g, group in enumerate(layout.groups) if group.is_state]
        self._states = States(self._num_groups, whole, guide or (lambda params: None))
        self._beside = ThreadPoolExecutor(1, "masks")

    def costs(self) -> list[OpCost]:
        return self._runner.costs()

    def load(self, checkpoint: Checkpoint) -> None:
        """Weights in the place of others, or after `unload`."""
        if hasattr(self, "_runner"):
            runner = self._runner
            self.unload()  # if it cannot be updated, the next load makes another
            runner.update(checkpoint)
        else:
            runner = self._make(checkpoint)
        self._proposer = self._draft(runner)
        self._runner = runner

    def unload(self) -> None:
        """Free weights and KV memory; no step may come before `load`."""
        del self._runner
        self._proposer = None

    def forward(self, plan: StepPlan) -> Ticket:
        begun = perf_counter()
        self._move(plan)
        self._states.follow(plan)
        drafts = self._propose(plan)
        if not plan.rows:
            return Ticket(plan.step, begun)
        batch = build_batch(plan, self._states, drafts, self._block_size, self._num_groups)
        guiding = Guiding(batch.wanted, self._states)
        masks = self._beside.submit(guiding.masks) if guiding else None
        return Ticket(plan.step, begun, _Work(batch, self._runner.forward(batch), guiding, masks))

    def sample(self, ticket: Ticket) -> StepResult:
        work = ticket.work
        if work is None:
            return StepResult(ticket.step, [], loaded=self._loaded(LOAD_SECONDS))
        drawn = iter(self._drawn(work))
        parts = [(wanted, list(islice(drawn, wanted.count))) for wanted in work.batch.wanted]
        result = StepResult(
            ticket.step,
            [
                _sampled(w, w.child, found, partial(work.guiding.judged, i))
                for i, (w, found) in enumerate(parts)
                if w.child is not None
            ],
            loaded=self._loaded(),
            told=[_told(w, found) for w, found in parts if w.child is None],
            seconds=perf_counter() - ticket.begun,
        )
        self._states.learn(result)
        return result

    def close(self, unsaved: list[Move]) -> None:
        """End the swap tier; `unsaved` blocks are worth keeping for another process."""
        if self._swap is None:
            return
        for move in unsaved if self._swap.lasts else ():
            self._swap.save(move.name, self._page(move), patient=True)
        self._swap.close()
        self._swap = None

    def _drawn(self, work: _Work) -> Sequence[Drawn]:
        rows = masked(work.batch.sampling, work.masks.result() if work.masks is not None else {})
        drawn = self._runner.sample(work.logits, rows, self._processors)
        return work.guiding.settle(drawn, partial(self._again, work.logits, rows))

    def _again(self, logits: Any, rows: Sequence[SamplingRow], masks: Masks) -> Sequence[Drawn]:
        """Draws of some rows with other masks."""
        some = list(masks)
        others = masked([rows[i] for i in some], dict(enumerate(masks.values())))
        return self._runner.sample(logits[some], others, self._processors)

    def _propose(self, plan: StepPlan) -> Sequence[Sequence[int]]:
        """Drafts of each row."""
        if self._proposer is None:
            return [()] * len(plan.rows)
        self._proposer.forget(plan.dropped)
        return self._proposer.propose(draft_rows(plan, self._states))

    def _loaded(self, wait: float = 0.0) -> list[tuple[str, bool]]:
        return self._swap.finished(wait) if self._swap is not None else []

    def _move(self, plan: StepPlan) -> None:
        """What the plan moves before its rows are computed."""
        if self._swap is None:
            return self._copy(plan.copies)
        try:
            for move in plan.saves:
                self._swap.save(move.name, self._page(move))
            self._copy(plan.copies)
        finally:  # whatever happens, a load that was planned begins, and so ends
            for move in plan.loads:
                self._swap.load(move.name, self._page(move))
            for name in plan.discards:
                self._swap.discard(name)

    def _page(self, move: Move) -> np.ndarray:
        page: np.ndarray = self._runner.pages(move.pool)[move.block]
        return page

    def _copy(self, copies: list[Copy]) -> None:
        for pool in {copy.pool for copy in copies}:
            mine = [copy for copy in copies if copy.pool == pool]
            self._runner.copy(pool, [c.source for c in mine], [c.target for c in mine])


def _sampled(
    wanted: Wanted,
    child: int,
    drawn: Sequence[Drawn],
    judged: Judged = lambda count: (None, None),
) -> Sampled:
    """The first token, and every next one while those before it equal the drafts: then it was drawn
    from the same logits, with the same noise, as it will be without drafts."""
    error = drawn[0].error
    if error is not None:
        return Sampled(wanted.sequence_id, child, [], error=error)
    taken = list(_accepted(wanted.drafts, drawn))
    logprobs = [one.logprobs for one in taken if one.logprobs is not None]
    closed_at, whole = judged(len(taken))
    return Sampled(
        wanted.sequence_id,
        child,
        [one.token_id for one in taken],
        logprobs or None,
        drafts=len(wanted.drafts),
        closed_at=closed_at,
        whole=whole,
    )


def _accepted(drafts: Iterable[int], drawn: Sequence[Drawn]) -> Iterator[Drawn]:
    """Up to a row that has an error, which comes again where no draft is before it."""
    yield drawn[0]
    for draft, before, one in zip(drafts, drawn, drawn[1:], strict=False):
        if before.token_id != draft or one.error is not None:
            return
        yield one


def _told(wanted: Wanted, given: Sequence[Drawn]) -> Told:
    errors = [one.error for one in given if one.error is not None]
    if errors:
        return Told(wanted.sequence_id, wanted.start, [], errors[0])
    logprobs: list[TokenLogprobs] = [one.logprobs for one in given if one.logprobs is not None]
    return Told(wanted.sequence_id, wanted.start, logprobs)
