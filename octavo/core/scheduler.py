"""Who computes which tokens in the next step, and what becomes of what was drawn.

There is one rule: make `num_computed` catch up with `num_known`, within the budget. Prompts in
chunks, decoding, prefix hits, forks and resumed sequences are all that rule. A step may be planned
while the one before it is computed: then the token that a sequence draws there has its place before
it is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from octavo.base.log import logger
from octavo.base.output import Delta, EngineStats
from octavo.base.plan import Move, StepPlan, StepResult
from octavo.base.request import Request
from octavo.base.settings import SchedulerSettings
from octavo.core.admission import Admission
from octavo.core.drafting import Drafting
from octavo.core.draws import take_all, take_told
from octavo.core.kv_manager import KVManager
from octavo.core.plan_builder import MOST_TOLD, PlanBuilder
from octavo.core.policies import QUEUE_ORDERS, VICTIMS
from octavo.core.roster import Roster
from octavo.core.sequence import Sequence

log = logger("scheduler")


class Scheduler:
    """Decides; computes nothing. Every `schedule` has its `update`, in the same order; one more
    step may be planned before the last one's.

    In order of (priority, arrival, child), each running sequence may take what the budget leaves
    after one token for everyone behind it, so nobody starves; room for KV is taken from those that
    this step has not come to yet.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        manager: KVManager,
        drafts: int = 0,
        most_told: int = MOST_TOLD,
    ) -> None:
        """`drafts`: that a row may have, at most; `most_told`: prompt positions whose logprobs are
        told by a step."""
        self._most_told = most_told
        self._settings = settings
        self._manager = manager
        self._drafting = Drafting(drafts)
        order = QUEUE_ORDERS[settings.policy]()
        self._victim = VICTIMS[settings.victim]()
        reserve = settings.admission == "whole"
        most = min(settings.max_num_seqs, manager.states.most_sequences)
        self._roster = Roster(manager, order, most, reserve)
        self._admission = Admission(self._roster, manager, order, most, settings.watermark)
        self._steps = 0
        self._preemptions = 0
        self._copies = 0
        self._query_tokens = 0
        self._hit_tokens = 0
        self._computed_tokens = 0

    @property
    def has_work(self) -> bool:
        return bool(self._roster.live) or self._manager.is_loading

    def add(self, request: Request) -> None:
        """Let a request wait. Its id must not be in use."""
        parent = self._roster.states.get(request.fork_of)
        for sequence in parent.alive.values() if parent is not None else ():
            if sequence.tables:
                self._manager.publish_tail(sequence)
        self._roster.add(request)

    def abort(self, request_id: str, child: int | None = None) -> None:
        """Forget a request, or one sequence of it, wherever it is; unknown are those that finished
        just before."""
        state = self._roster.states.get(request_id)
        if state is not None:
            doomed = state.alive.values() if child is None else [state.alive.get(child)]
            for sequence in list(doomed):
                if sequence is not None:
                    self._roster.finish(sequence)

    # ---- between steps ----

    @property
    def has_begun(self) -> bool:
        """Whether a request that has been computed in part is still here."""
        return any(sequence.state.has_begun for sequence in self._roster.live.values())

    @property
    def is_loading(self) -> bool:
        """Whether a block is on its way from the swap tier."""
        return self._manager.is_loading

    @contextmanager
    def admitting(self, whom: Literal["begun", "nobody"]) -> Iterator[None]:
        """Meanwhile newcomers wait, or everybody does."""
        self._admission.whom = whom
        try:
            yield
        finally:
            self._admission.whom = "all"

    def abort_begun(self) -> list[Delta]:
        """End every request that has begun."""
        begun = [s for s in self._roster.live.values() if s.state.has_begun]
        alive = (s for s in begun if s.sequence_id in self._roster.live)
        return [delta for s in alive for delta in self._roster.end(s, "abort")]

    def suspend(self) -> None:
        """Have every sequence wait; it will be computed again."""
        for sequence in list(self._roster.running):
            self._roster.suspend(sequence)

    def begin_epoch(self, epoch: str) -> None:
        """What is computed from now on is of other weights. No sequence holds blocks."""
        assert not self._roster.running, "a sequence still holds KV of the weights before"
        self._manager.cache.begin_epoch(epoch)
        for sequence in self._roster.live.values():
            sequence.prefix = self._manager.cache.prefix(sequence.request, sequence.token_ids)

    def reset_prefix_cache(self) -> bool:
        """Forget all content; False, with nothing changed, where a sequence holds blocks."""
        return self._manager.reset()

    # ---- a step ----

    def schedule(self) -> StepPlan:
        """Plan one step. Advances `num_computed`, as if the step had been computed."""
        self._manager.cache.begin()
        self._steps += 1
        preempted = self._preemptions
        todo = [s for s in self._roster.running if s.is_ready]
        limit = self._drafting.limit(len(todo))
        budget = self._settings.max_num_batched_tokens
        plan = PlanBuilder(self._manager, budget, limit, self._most_told)
        while todo:
            sequence = todo.pop(0)
            if length := plan.length(sequence, len(todo)):
                self._add(sequence, length, plan, todo)
        if self._preemptions == preempted:
            self._admit(plan)
        whole = self._manager.complete(plan.build(self._steps, self._roster.take_dropped()))
        self._computed_tokens += whole.num_tokens
        self._copies += len(whole.copies)
        return whole

    def update(self, plan: StepPlan, result: StepResult) -> list[Delta]:
        """Take in what was drawn; sequences aborted meanwhile are passed over. A step that failed
        ends its sequences with an error; of a later one that is planned no row may be computed."""
        assert plan.step == result.step, (plan.step, result.step)
        self._manager.settle(written=result.error is None)
        for name, intact in result.loaded:
            sequence = self._manager.loaded(name, intact)
            if sequence is not None and sequence.is_spoilt:
                self._retry(sequence)
        if result.error is not None:
            return self._fail(plan, result.error)
        if self._drafting.most:
            live = [drawn for drawn in result.rows if drawn.sequence_id in self._roster.live]
            self._drafting.learn(plan, live, result.seconds)
        return [
            *take_told(self._roster, result.told),
            *take_all(self._roster, self._manager, result.rows),
            *self._end_prompts(plan),
        ]

    def unsaved(self) -> list[Move]:
        """Blocks that a swap tier might keep for another process."""
        return [Move(*named) for named in self._manager.cache.named()]

    def stats(self) -> EngineStats:
        attention, states = self._manager.attention_pools, self._manager.states.groups.values()
        return EngineStats(
            running=len(self._roster.running),
            waiting=len(self._roster.waiting),
            kv_blocks_used=sum(pool.num_used for pool in attention),
            kv_blocks=sum(pool.num_blocks - 1 for pool in attention),
            states_used=sum(pool.num_used for pool in states),
            states=sum(pool.num_blocks - 1 for pool in states),
            preemptions_total=self._preemptions,
            kv_copies_total=self._copies,
            prefix_query_tokens_total=self._query_tokens,
            prefix_hit_tokens_total=self._hit_tokens,
            computed_tokens_total=self._computed_tokens,
            steps_total=self._steps,
            drafts_total=self._drafting.rows,
            draft_tokens_total=self._drafting.tokens,
            accepted_tokens_total=sum(self._drafting.accepted),
            accepted_per_position_total=list(self._drafting.accepted),
        )

    # ---- planning ----

    def _add(
        self, sequence: Sequence, length: int, plan: PlanBuilder, todo: list[Sequence]
    ) -> None:
        """Give a running sequence a row. Room for it is taken from one that has no row yet, which
        may be itself; but where drafts under way have room it waits for that, and there are no
        more drafts."""
        while not plan.add(sequence, length):
            if any(sum(s.under_way) > len(s.under_way) for s in self._roster.running):
                plan.limit = 0
                return
            scheduled = plan.sequences
            others = [s for s in self._roster.running if s.sequence_id not in scheduled]
            victim = self._victim.pick(
                [s for s in others if not s.reserves] or others, self._manager.lost
            )
            self._preempt(victim)
            if victim is sequence:
                left = self._roster.running or self._manager.is_loading
                assert left, "the pool cannot hold one sequence; the door let it in"
                return
            if victim in todo:
                todo.remove(victim)

    def _admit(self, plan: PlanBuilder) -> None:
        """Start waiting sequences in order, each only if memory for it is free."""
        while self._roster.waiting:
            sequence = self._admission.next()
            if sequence is None or not plan.takes(sequence) or not self._find_room(sequence):
                return
            self._roster.waiting.first(1)[0].times_passed += 1  # or its own, which counts no more
            self._roster.waiting.remove(sequence)
            self._roster.run(sequence)
            self._count_hit(sequence)
            if not sequence.num_loading:
                there = plan.add(sequence, plan.length(sequence))
                assert there, "admission promised these blocks"

    def _find_room(self, sequence: Sequence) -> bool:
        """Admit a waiting sequence, at the cost of those in its way, if there are any."""
        while not self._admission.admit(sequence):
            victims = self._admission.in_the_way(sequence)
            if not victims:
                return False
            for victim in victims:
                self._preempt(victim)
        return True

    def _count_hit(self, sequence: Sequence) -> None:
        """Resumed sequences find their own blocks again; that is no hit worth counting."""
        state = sequence.state
        if state.prompt_hit is None:
            state.prompt_hit = sequence.num_cached
            self._query_tokens += sequence.num_known
            self._hit_tokens += sequence.num_cached

    def _preempt(self, sequence: Sequence) -> None:
        lost, state = self._manager.lost(sequence), sequence.state
        self._roster.suspend(sequence)
        self._preemptions += 1
        state.preemptions += 1
        if state.preemptions >= self._settings.max_preemptions:
            for sibling in state.alive.values():
                sibling.reserves = True
        log.warning(
            "request %s preempted: %d computed tokens freed, KV memory is full; a larger "
            "--kv-memory, a smaller --max-num-seqs or --admission whole avoids this (preemption "
            "%d)",
            state.request.request_id,
            lost,
            self._preemptions,
        )

    def _fail(self, plan: StepPlan, why: str) -> list[Delta]:
        """What a failed step should have written may be held or awaited by everybody else."""
        deltas = [
            delta
            for row in plan.rows
            if row.sequence_id in self._roster.live
            for delta in self._roster.end(
                self._roster.live[row.sequence_id], "error", why, written=False
            )
        ]
        for sequence in list(self._roster.running):
            self._roster.suspend(sequence, written=False)
        return deltas

    def _end_prompts(self, plan: StepPlan) -> Iterator[Delta]:
        """Requests for nothing but their prompt have ended where that is computed."""
        for row in plan.rows:
            sequence = None if row.draws else self._roster.live.get(row.sequence_id)
            if sequence is not None and row.start + row.length == sequence.state.final_len:
                yield from self._roster.end(sequence, "length")

    def _retry(self, sequence: Sequence) -> None:
        """A sequence waits again, as what it was to begin with could not be brought back."""
        state = sequence.state
        self._roster.suspend(sequence, written=False)
        if sequence.num_generated == 0 and state.preemptions == 0:  # it has not begun at all
            self._query_tokens -= sequence.num_known
            self._hit_tokens -= state.prompt_hit or 0
            state.prompt_hit = None
