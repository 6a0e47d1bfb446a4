"""Random play over pool, index, manager and scheduler against a device that checks every read."""

from __future__ import annotations

import random

import pytest
from core_worlds import SHAPES, STATE, World, generated, layout, likeliest, request
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octavo.core.beam_search import BeamSearch
from octavo.core.policies import QUEUE_ORDERS, VICTIMS
from octavo.core.prefix_indexes import PREFIX_INDEXES

NUM_BLOCKS = 10
BLOCK = 4
LONGEST = NUM_BLOCKS * BLOCK  # what the door would let in


class SchedulerPlay(RuleBasedStateMachine):
    @initialize(
        shape=st.sampled_from(sorted(SHAPES)),
        caching=st.sampled_from([True, True, False]),
        index=st.sampled_from(sorted(PREFIX_INDEXES)),
        seqs=st.integers(1, 4),
        extra=st.integers(0, 12),
        watermark=st.sampled_from([0.0, 0.1, 0.3]),
        policy=st.sampled_from(sorted(QUEUE_ORDERS)),
        victim=st.sampled_from(sorted(VICTIMS)),
        admission=st.sampled_from(["prompt", "prompt", "whole"]),
        max_preemptions=st.integers(1, 3),
        swap=st.sampled_from([0, 0, 100, 10_000]),
        pace=st.sampled_from([0.05, 0.7]),
        interval=st.sampled_from([BLOCK, 2 * BLOCK, 5 * BLOCK]),
        states=st.integers(2, 16),
        ahead=st.booleans(),
        drafts=st.sampled_from([0, 0, 1, 3, 9]),
    )
    def start(
        self, shape, caching, index, seqs, extra, swap, interval, states, ahead, drafts, **settings
    ):
        if keeps_states(shape):
            ahead, drafts = False, 0
        chunk = max(seqs + extra, generated(ahead, drafts))
        self.world = World(
            layout(NUM_BLOCKS, BLOCK, shape, chunk, interval, states),
            prefix_caching=caching,
            prefix_index=index,
            swap=0 if keeps_states(shape) or not caching else swap,
            max_num_seqs=seqs,
            max_num_batched_tokens=seqs + extra,
            ahead=ahead,
            drafts=drafts,
            **settings,
        )
        self.caching = caching
        self.requests = {}
        self.preemptions = {}

    @rule(
        prefix=st.integers(0, 3),
        tail=st.lists(st.integers(1, 2), min_size=1, max_size=6),
        max_tokens=st.integers(1, 24),
        priority=st.integers(0, 2),
        salt=st.sampled_from(["", "", "s"]),
        owner=st.sampled_from(["", "", "s"]),
        n=st.sampled_from([1, 1, 1, 2, 3, 5]),
        told=st.sampled_from([None, None, None, 0, 1, 7, 100]),
    )
    def add(self, prefix, tail, max_tokens, priority, salt, owner, n, told):
        prompt = [1] * (prefix * BLOCK) + tail
        most = min(max_tokens, LONGEST - len(prompt))
        params = {"n": n}
        if told is not None:
            params |= {"prompt_logprobs": 0, "prompt_logprob_start": told}
        self._add(prompt, most, params, priority=priority, cache_salt=salt, owner=owner)

    @rule(prompt=st.lists(st.integers(1, 2), min_size=1, max_size=30))
    def only_a_prompt(self, prompt):
        self._add(prompt, 0, {"prompt_logprobs": 0})

    @rule(
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=9),
        max_tokens=st.integers(1, 9),
        n=st.integers(1, 3),
        early=st.sampled_from([True, False, "never"]),
        penalty=st.sampled_from([0.0, 1.0, -0.5]),
    )
    def beams(self, prompt, max_tokens, n, early, penalty):
        n = min(n, self.world.settings.max_num_seqs)
        shared = len(prompt) if self.caching else 0
        while not self.world.layout.fits_together(n, len(prompt) + max_tokens, shared):
            n -= 1  # the door would refuse it
        controls = {"use_beam_search": True, "length_penalty": penalty, "early_stopping": early}
        self._add(prompt, max_tokens, {"n": n, **controls})

    @rule(
        pick=st.integers(0, 40),
        back=st.integers(0, 6),
        text=st.lists(st.integers(1, 2), max_size=3),
        max_tokens=st.integers(1, 9),
    )
    def fork(self, pick, back, text, max_tokens):
        """Go on from a request that runs, or ran, some tokens before its end."""
        name = f"r{pick}"
        if name not in self.requests:
            return
        parent = self.requests[name]
        known = [*parent.prompt_token_ids, *self.world.outputs[name].get(0, [])]
        prompt = known[: max(1, len(known) - back)] + text
        if len(prompt) < LONGEST:
            most = min(max_tokens, LONGEST - len(prompt))
            self._add(prompt, most, cache_salt=parent.cache_salt, owner=parent.owner, fork_of=name)

    def _add(self, prompt, max_tokens, params=None, **options):
        name = f"r{len(self.requests)}"
        self.requests[name] = request(name, prompt, max_tokens, params, **options)
        self.world.add(self.requests[name])

    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=4), times=st.integers(1, 8))
    def steps(self, tokens, times):
        for _ in range(times):
            self.world.step(tokens)
            self.world.check()

    @rule(pick=st.integers(0, 40), child=st.sampled_from([None, None, 0, 1, 2]))
    def abort(self, pick, child):
        name = f"r{pick}"
        if name not in self.requests:
            return
        params = self.requests[name].params
        if params.use_beam_search or child not in self.world.outputs[name]:
            child = None
        self.world.scheduler.abort(name, child)
        children = range(params.n) if child is None else [child]
        for i in children:
            if i not in self.world.finished[name]:
                self.world.finished[name][i] = "abort"

    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=3), pick=st.integers(0, 40))
    def abort_during_step(self, tokens, pick):
        if self.world.ahead:
            return
        plan = self.world.plan()
        self.abort(pick, None)
        self.world.finish(plan, tokens)

    @rule(pick=st.one_of(st.none(), st.integers(0, 40)))
    def failed_step(self, pick):
        if self.world.ahead:
            self.world.step(fails=True)
            return
        plan = self.world.plan()
        if pick is not None:
            self.abort(pick, None)
        self.world.spoil(plan)
        self.world.fail(plan)

    @rule(epoch=st.sampled_from("ab"))
    def other_weights(self, epoch):
        """Everybody is computed again, as when an update does not wait."""
        scheduler = self.world.scheduler
        scheduler.suspend()
        with scheduler.admitting("nobody"):
            while scheduler.is_loading:
                self.world.step()
        self.world.land()
        scheduler.begin_epoch(epoch)

    @rule()
    def reset(self):
        busy = any(s.tables for s in self.world.scheduler._roster.live.values())
        idle = not busy and not self.world.loads
        assert self.world.manager.reset() == idle
        if idle:
            assert not any(len(pool.index) for pool in self.world.manager.pools)

    @invariant()
    def books_balance(self):
        if hasattr(self, "world"):
            self.world.check()

    @invariant()
    def preemptions_are_bounded(self):
        if not hasattr(self, "world"):
            return
        alone = self.world.settings.admission == "whole"
        for state in self.world.scheduler._roster.states.values():
            if state.request.params.n == 1:
                assert state.preemptions <= self.world.settings.max_preemptions
                assert not alone or state.preemptions == 0

    def teardown(self):
        if not hasattr(self, "world"):
            return
        self.world.drain(limit=50 * LONGEST * (len(self.requests) + 1))
        self.world.check()
        for pool in self.world.manager.pools:
            assert pool.num_free == pool.num_blocks - 1, "blocks leaked"
        self.world.step()  # whose plan tells of discards
        swap = self.world.manager._moves.directory
        assert swap is None or set(swap._sizes) == set(self.world.saved)
        assert swap is None or swap.num_bytes <= swap._capacity
        for name, asked in self.requests.items():
            ends = self.world.finished[name]
            assert len(ends) == asked.params.n
            if not {"abort", "error"} & set(ends.values()):
                self._check_told(name, asked)
            if asked.params.use_beam_search and not {"abort", "error"} & set(ends.values()):
                assert self.world.outputs[name] == beams_alone(asked)

    def _check_told(self, name, asked):
        """All prompt tokens that were wanted, each once."""
        first = max(1, asked.params.prompt_logprob_start)
        wanted = asked.params.prompt_logprobs is not None
        expected = asked.prompt_token_ids[first:] if wanted else []
        assert self.world.told.get(name, []) == expected


def keeps_states(shape):
    return any(window == STATE for _, window in SHAPES[shape])


def beams_alone(asked):
    """What a beam search finds with nobody else around."""
    search = BeamSearch(asked)
    while not search.done:
        histories = [[*asked.prompt_token_ids, *beam.token_ids] for beam in search.beams]
        search.advance([likeliest(tokens, search.num_logprobs) for tokens in histories])
    return {i: found.beam.token_ids for i, found in enumerate(search.hypotheses)}


TestSchedulerPlay = SchedulerPlay.TestCase
TestSchedulerPlay.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


@pytest.mark.slow
class TestLongSchedulerPlay(SchedulerPlay.TestCase):
    settings = settings(max_examples=2000, stateful_step_count=80, deadline=None)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_play_meets_preemption_hits_eviction_and_errors(shape):
    """Thousands of steps of a fixed play, so that what it is for is known to happen."""
    rng = random.Random(shape)
    windows = [window for _, window in SHAPES[shape]]
    states = keeps_states(shape)
    requests = 500 if states else 1500
    attention = windows != [STATE]  # states alone are never short, nor copied
    kv = layout(NUM_BLOCKS, BLOCK, shape, chunk=12)
    world = World(kv, max_num_seqs=4, max_num_batched_tokens=12, swap=0 if states else 2000)
    steps = evicted = 0
    for number in range(requests):
        prompt = [1] * (rng.randrange(4) * BLOCK) + [rng.randint(1, 2) for _ in range(3)]
        params = {"n": rng.choice([1, 1, 1, 2, 3])}
        most = rng.randint(1, LONGEST - len(prompt))
        world.add(request(f"r{number}", prompt, most, params))
        for _ in range(rng.randrange(8)):
            plan = world.plan()
            steps += 1
            if rng.random() < 0.02:
                world.spoil(plan)
                world.fail(plan)
            else:
                world.finish(plan, [rng.randint(1, 2)])
            evicted += len(world.blanks)
        world.check()
        if rng.random() < 0.2:
            world.scheduler.abort(f"r{rng.randrange(number + 1)}")
    for name in world.outputs:
        world.scheduler.abort(name)
    world.drain()
    stats = world.scheduler.stats()
    few = requests // 9
    assert steps > 3 * requests
    assert stats.prefix_hit_tokens_total > few
    assert evicted > few
    check_often(stats.preemptions_total, few, attention)
    check_often(world.copies, few, attention)
    check_often(world.num_loaded, few, not states)
    check_often(world.num_spoilt, few // 10, not states)
    check_often(world.states_written, 10 * few, states)
    assert any("error" in ends.values() for ends in world.finished.values())
    assert stats.kv_blocks_used == stats.states_used == 0
    assert stats.kv_blocks + stats.states == sum(p.num_blocks - 1 for p in world.manager.pools)
    assert (stats.states > 0) == states


def check_often(count, few, can):
    assert count > few if can else count == 0
