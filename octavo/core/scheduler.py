"""Who computes which tokens in the next step, and what becomes of what was drawn.

There is one rule: make `num_computed` catch up with `num_known`, within the budget. Prompts in
chunks, decoding, prefix hits, forks and resumed sequences are all that rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Several
from contextlib import contextmanager
from typing import Literal

from octavo.base.log import logger
from octavo.base.output import Delta, EngineStats
from octavo.base.plan import Move, NewSequence, Row, StepPlan, StepResult
from octavo.base.request import Request
from octavo.base.settings import SchedulerSettings
from octavo.core.admission import Admission
from octavo.core.draws import take_all
from octavo.core.kv_manager import KVManager
from octavo.core.policies import QUEUE_ORDERS, VICTIMS
from octavo.core.roster import Roster
from octavo.core.sequence import Sequence

log = logger("scheduler")


class Scheduler:
    """Decides; computes nothing. `schedule` and `update` alternate.

    In order of (priority, arrival, child), each running sequence may take what the budget leaves
    after one token for everyone behind it, so nobody starves; room for KV is taken from those that
    this step has not come to yet.
    """

    def __init__(self, settings: SchedulerSettings, manager: KVManager) -> None:
        self._settings = settings
        self._manager = manager
        order = QUEUE_ORDERS[settings.policy]()
        self._victim = VICTIMS[settings.victim]()
        reserve = settings.admission == "whole"
        most = min(settings.max_num_seqs, manager.states.most_sequences)
        self._roster = Roster(manager, order, most, reserve)
        self._admission = Admission(self._roster, manager, order, most, settings.watermark)
        self._steps = 0
        self._begun_loading: list[Sequence] = []  # in the step that is planned
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
        self._begun_loading = []
        new: list[NewSequence] = []
        rows: list[Row] = []
        preempted = self._preemptions
        budget = self._settings.max_num_batched_tokens
        todo = [s for s in self._roster.running if not s.is_idle and not s.num_loading]
        while todo:
            sequence = todo.pop(0)
            length = self._length(sequence, budget - len(todo))
            if self._make_room(sequence, length, rows, todo):
                rows.append(self._row(sequence, length, new))
                budget -= length
        if self._preemptions == preempted:
            self._admit(budget, new, rows)
        self._steps += 1
        dropped = self._roster.take_dropped()
        plan = self._manager.complete(StepPlan(self._steps, new, rows, dropped))
        self._copies += len(plan.copies)
        return plan

    def update(self, plan: StepPlan, result: StepResult) -> list[Delta]:
        """Take in what was drawn; sequences aborted meanwhile are passed over. A step that failed
        ends its sequences with an error."""
        assert plan.step == result.step, (plan.step, result.step)
        self._manager.settle(written=result.error is None)
        for name, intact in result.loaded:
            sequence = self._manager.loaded(name, intact)
            if sequence is not None and sequence.is_spoilt:
                self._retry(sequence)
        if result.error is None:
            return take_all(self._roster, result.rows, self._manager.cache.epoch)
        for sequence in self._begun_loading:  # may hold what a row should have written
            if sequence.tables:
                self._roster.suspend(sequence, written=False)
        return [
            delta
            for row in plan.rows
            if row.sequence_id in self._roster.live
            for delta in self._roster.end(
                self._roster.live[row.sequence_id], "error", result.error, written=False
            )
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
        )

    # ---- planning ----

    def _length(self, sequence: Sequence, budget: int) -> int:
        """Tokens of a sequence's next row."""
        length = min(sequence.num_known - sequence.num_computed, budget)
        return self._manager.states.until(sequence, length)

    def _row(self, sequence: Sequence, length: int, new: list[NewSequence]) -> Row:
        """Of a sequence that has blocks for so many more tokens."""
        assert length >= 1, f"sequence {sequence.sequence_id}: {length} tokens"
        if not sequence.is_introduced:
            sequence.is_introduced = True
            new.append(_introduce(sequence))
        start = sequence.num_computed
        sequence.num_computed += length
        sequence.check()
        self._computed_tokens += length
        self._manager.publish(sequence)
        kept, blocks = self._manager.unsent(sequence)
        return Row(sequence.sequence_id, start, length, kept, blocks, _draws(sequence))

    def _make_room(
        self, sequence: Sequence, length: int, rows: Several[Row], todo: list[Sequence]
    ) -> bool:
        """Find blocks for a running sequence, at the cost of one that has no row yet; False if that
        is the sequence itself."""
        while not self._manager.extend(sequence, sequence.num_computed + length):
            scheduled = {row.sequence_id for row in rows}
            others = [s for s in self._roster.running if s.sequence_id not in scheduled]
            victim = self._victim.pick(
                [s for s in others if not s.reserves] or others, self._manager.lost
            )
            self._preempt(victim)
            if victim is sequence:
                left = self._roster.running or self._manager.is_loading
                assert left, "the pool cannot hold one sequence; the door let it in"
                return False
            if victim in todo:
                todo.remove(victim)
        return True

    def _admit(self, budget: int, new: list[NewSequence], rows: list[Row]) -> None:
        """Start waiting sequences in order, each only if memory for it is free."""
        while self._roster.waiting and budget > 0:
            sequence = self._admission.next()
            if sequence is None or not self._find_room(sequence):
                return
            self._roster.waiting.first(1)[0].times_passed += 1  # or its own, which counts no more
            self._roster.waiting.remove(sequence)
            self._roster.run(sequence)
            self._count_hit(sequence)
            if sequence.num_loading:
                self._begun_loading.append(sequence)
                continue
            length = self._length(sequence, budget)
            there = self._manager.extend(sequence, sequence.num_computed + length)
            assert there, "admission promised these blocks"
            rows.append(self._row(sequence, length, new))
            budget -= length

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

    def _retry(self, sequence: Sequence) -> None:
        """A sequence waits again, as what it was to begin with could not be brought back."""
        state = sequence.state
        self._roster.suspend(sequence, written=False)
        if sequence.num_generated == 0 and state.preemptions == 0:  # it has not begun at all
            self._query_tokens -= sequence.num_known
            self._hit_tokens -= state.prompt_hit or 0
            state.prompt_hit = None


def _draws(sequence: Sequence) -> tuple[int, ...]:
    """Children whose next token its row draws: those to be forked from it, then itself."""
    if sequence.num_computed < sequence.num_known:
        return ()
    own, unborn = sequence.child, sequence.state.unborn
    if not unborn or sequence.state.search:
        return (own,)
    return (*range(own + 1, own + 1 + unborn), own)


def _introduce(sequence: Sequence) -> NewSequence:
    request, search = sequence.request, sequence.state.search
    return NewSequence(
        sequence_id=sequence.sequence_id,
        token_ids=list(sequence.token_ids),
        prompt_len=len(request.prompt_token_ids),
        params=request.params,
        stop_ids=(*request.eos_token_ids, *request.params.stop_ids),
        logprobs=search.num_logprobs if search else request.params.logprobs,
    )
