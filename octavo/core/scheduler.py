"""Who computes which tokens in the next step, and what becomes of what was drawn.

There is one rule: make `num_computed` catch up with `num_known`, within the budget. Prompts in
chunks, decoding, prefix hits and resumed sequences are all that rule.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from itertools import count

from octavo.base.log import logger
from octavo.base.output import Delta, EngineStats
from octavo.base.plan import NewSequence, Row, Sampled, StepPlan, StepResult
from octavo.base.request import Request
from octavo.base.settings import SchedulerSettings
from octavo.core.kv_manager import KVManager
from octavo.core.queue import WaitingQueue
from octavo.core.sequence import Sequence

log = logger("scheduler")


class Scheduler:
    """Decides; computes nothing. `schedule` and `update` alternate.

    `running` is kept in order of (priority, arrival). Each running sequence may take what the
    budget leaves after one token for everyone behind it, so nobody starves; room for KV is taken
    from the last in order, which this step has not come to yet.
    """

    def __init__(self, settings: SchedulerSettings, manager: KVManager) -> None:
        self._settings = settings
        self._manager = manager
        self._waiting = WaitingQueue()
        self._running: list[Sequence] = []
        self._live: dict[int, Sequence] = {}
        self._ids: dict[str, int] = {}  # request id -> sequence id
        self._dropped: list[int] = []  # sequences the worker shall forget
        self._numbers = count()
        self._steps = 0
        self._preemptions = 0
        self._query_tokens = 0
        self._hit_tokens = 0
        self._computed_tokens = 0

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    def add(self, request: Request) -> None:
        """Let a request wait. Its id must not be in use."""
        assert request.request_id not in self._ids, f"request {request.request_id} is here already"
        number = next(self._numbers)
        by_priority = self._settings.policy == "priority"
        sequence = Sequence(
            sequence_id=number,
            request=request,
            order=(request.priority if by_priority else 0, number),
            chain=self._manager.chain(request.cache_salt),
            token_ids=list(request.prompt_token_ids),
        )
        self._live[number] = sequence
        self._ids[request.request_id] = number
        self._waiting.push(sequence)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests, wherever they are; unknown ids are those that finished just before."""
        for request_id in request_ids:
            if request_id in self._ids:
                self._finish(self._live[self._ids[request_id]])

    def schedule(self) -> StepPlan:
        """Plan one step. Advances `num_computed`, as if the step had been computed."""
        new: list[NewSequence] = []
        rows: list[Row] = []
        preempted = self._preemptions
        budget = self._settings.max_num_batched_tokens
        index = 0
        while index < len(self._running) and self._make_room(self._running[index]):
            behind = len(self._running) - index - 1
            rows.append(self._row(self._running[index], budget - behind))
            budget -= rows[-1].length
            index += 1
        if self._preemptions == preempted:
            self._admit(budget, new, rows)
        self._steps += 1
        dropped, self._dropped = self._dropped, []
        return StepPlan(self._steps, new, rows, dropped)

    def update(self, plan: StepPlan, result: StepResult) -> list[Delta]:
        """Take in what was drawn; sequences aborted meanwhile are passed over. A step that failed
        ends its sequences with an error."""
        assert plan.step == result.step, (plan.step, result.step)
        self._manager.settle(written=result.error is None)
        if result.error is not None:
            return [
                self._fail(self._live[row.sequence_id], result.error)
                for row in plan.rows
                if row.sequence_id in self._live
            ]
        return [
            self._take(self._live[drawn.sequence_id], drawn)
            for drawn in result.rows
            if drawn.sequence_id in self._live
        ]

    def stats(self) -> EngineStats:
        pools = self._manager.pools
        return EngineStats(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_blocks_used=sum(pool.num_used for pool in pools),
            kv_blocks=sum(pool.num_blocks - 1 for pool in pools),
            preemptions_total=self._preemptions,
            prefix_query_tokens_total=self._query_tokens,
            prefix_hit_tokens_total=self._hit_tokens,
            computed_tokens_total=self._computed_tokens,
            steps_total=self._steps,
        )

    def _row(self, sequence: Sequence, most: int) -> Row:
        start = sequence.num_computed
        length = min(sequence.num_known - start, most)
        assert length >= 1, f"sequence {sequence.sequence_id}: {length} tokens of {most}"
        sequence.num_computed += length
        sequence.check()
        self._computed_tokens += length
        self._manager.publish(sequence)
        samples = sequence.num_computed == sequence.num_known
        return Row(sequence.sequence_id, start, length, self._manager.unsent(sequence), samples)

    def _make_room(self, sequence: Sequence) -> bool:
        """Find blocks for a running sequence, at the cost of the last in order; False if that is
        the sequence itself."""
        while not self._manager.grow(sequence):
            victim = self._running.pop()
            self._preempt(victim)
            if victim is sequence:
                assert self._running, "the pool cannot hold one sequence; the door let it in"
                return False
        return True

    def _admit(self, budget: int, new: list[NewSequence], rows: list[Row]) -> None:
        """Start waiting sequences in order, each only if its whole known length fits."""
        while self._waiting and budget > 0 and len(self._running) < self._settings.max_num_seqs:
            sequence = self._waiting.peek()
            watermark = self._settings.watermark if self._running else 0.0
            if not self._manager.admit(sequence, watermark):
                return
            self._waiting.remove(sequence)
            bisect.insort(self._running, sequence, key=lambda s: s.order)
            self._count_hit(sequence)
            new.append(_introduce(sequence))
            rows.append(self._row(sequence, budget))
            budget -= rows[-1].length

    def _count_hit(self, sequence: Sequence) -> None:
        """Resumed sequences find their own blocks again; that is no hit worth counting."""
        if sequence.prompt_hit is None:
            sequence.prompt_hit = sequence.num_cached
            self._query_tokens += sequence.num_known
            self._hit_tokens += sequence.num_cached

    def _preempt(self, sequence: Sequence) -> None:
        lost = sequence.num_computed
        self._manager.free(sequence)
        self._dropped.append(sequence.sequence_id)
        self._waiting.push(sequence)
        self._preemptions += 1
        log.warning(
            "request %s preempted: %d computed tokens freed, KV memory is full; a larger "
            "--kv-memory or a smaller --max-num-seqs avoids this (preemption %d)",
            sequence.request.request_id,
            lost,
            self._preemptions,
        )

    def _take(self, sequence: Sequence, drawn: Sampled) -> Delta:
        if drawn.error is not None:
            return self._fail(sequence, drawn.error)
        reason = stop = None
        taken = 0
        while taken < len(drawn.token_ids) and reason is None:
            reason, stop = sequence.append(drawn.token_ids[taken])
            taken += 1
        if reason is not None:
            self._finish(sequence)
        return Delta(
            request_id=sequence.request.request_id,
            token_ids=drawn.token_ids[:taken],
            logprobs=drawn.logprobs and drawn.logprobs[:taken],
            finish_reason=reason,
            stop_reason=stop,
            num_cached_tokens=sequence.prompt_hit or 0,
        )

    def _fail(self, sequence: Sequence, why: str) -> Delta:
        self._finish(sequence)
        return Delta(sequence.request.request_id, [], finish_reason="error", error=why)

    def _finish(self, sequence: Sequence) -> None:
        del self._live[sequence.sequence_id], self._ids[sequence.request.request_id]
        if self._waiting.remove(sequence):
            return
        self._running.remove(sequence)
        self._manager.free(sequence)
        self._dropped.append(sequence.sequence_id)


def _introduce(sequence: Sequence) -> NewSequence:
    request = sequence.request
    return NewSequence(
        sequence_id=sequence.sequence_id,
        token_ids=list(sequence.token_ids),
        prompt_len=len(request.prompt_token_ids),
        params=request.params,
        stop_ids=(*request.eos_token_ids, *request.params.stop_ids),
    )
