"""Random play over pool, index, manager and scheduler against a device that checks every read."""

from __future__ import annotations

import random

import pytest
from core_worlds import World, layout, request
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octavo.core.prefix_index import HashIndex

NUM_BLOCKS = 10
BLOCK = 4
LONGEST = NUM_BLOCKS * BLOCK  # what the door would let in


class SchedulerPlay(RuleBasedStateMachine):
    @initialize(
        shape=st.sampled_from(["one", "shared", "split"]),
        caching=st.booleans(),
        seqs=st.integers(1, 4),
        extra=st.integers(0, 12),
        watermark=st.sampled_from([0.0, 0.1, 0.3]),
        policy=st.sampled_from(["fcfs", "priority"]),
    )
    def start(self, shape, caching, seqs, extra, watermark, policy):
        self.world = World(
            layout(NUM_BLOCKS, BLOCK, shape),
            prefix_caching=caching,
            max_num_seqs=seqs,
            max_num_batched_tokens=seqs + extra,
            watermark=watermark,
            policy=policy,
        )
        self.count = 0

    @rule(
        prefix=st.integers(0, 3),
        tail=st.lists(st.integers(1, 2), min_size=1, max_size=6),
        max_tokens=st.integers(1, 24),
        priority=st.integers(0, 2),
        salt=st.sampled_from(["", "", "s"]),
    )
    def add(self, prefix, tail, max_tokens, priority, salt):
        prompt = [1] * (prefix * BLOCK) + tail
        most = min(max_tokens, LONGEST - len(prompt))
        self.world.add(request(f"r{self.count}", prompt, most, priority=priority, cache_salt=salt))
        self.count += 1

    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=4), times=st.integers(1, 8))
    def steps(self, tokens, times):
        for _ in range(times):
            self.world.step(tokens)
            self.world.check()

    @rule(pick=st.integers(0, 40))
    def abort(self, pick):
        self.world.scheduler.abort([f"r{pick}"])
        if pick < self.count:
            self.world.finished.setdefault(f"r{pick}", "abort")

    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=3), pick=st.integers(0, 40))
    def abort_during_step(self, tokens, pick):
        plan = self.world.plan()
        self.abort(pick)
        self.world.finish(plan, tokens)

    @rule(pick=st.one_of(st.none(), st.integers(0, 40)))
    def failed_step(self, pick):
        plan = self.world.plan()
        if pick is not None:
            self.abort(pick)
        for row in plan.rows:  # the step may have written anything, or nothing
            for g, table in enumerate(self.world.tables[row.sequence_id]):
                for position in range(row.start, row.start + row.length):
                    pool = self.world.layout.pool_of(g)
                    slot = (pool, table[position // BLOCK], position % BLOCK)
                    self.world.memory[slot] = ("garbage",)
        self.world.fail(plan)

    @invariant()
    def books_balance(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if not hasattr(self, "world"):
            return
        self.world.drain(limit=20 * LONGEST * (self.count + 1))
        self.world.check()
        for pool in self.world.manager.pools:
            assert pool.num_free == pool.num_blocks - 1, "blocks leaked"
        assert len(self.world.finished.keys() & self.world.outputs.keys()) == self.count


TestSchedulerPlay = SchedulerPlay.TestCase
TestSchedulerPlay.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


@pytest.mark.slow
class TestLongSchedulerPlay(SchedulerPlay.TestCase):
    settings = settings(max_examples=2000, stateful_step_count=80, deadline=None)


@pytest.mark.parametrize("shape", ["one", "shared", "split"])
def test_the_play_meets_preemption_hits_eviction_and_errors(shape):
    """Thousands of steps of a fixed play, so that what it is for is known to happen."""
    rng = random.Random(shape)
    world = World(layout(NUM_BLOCKS, BLOCK, shape), max_num_seqs=4, max_num_batched_tokens=12)
    steps = evicted = 0
    forget = HashIndex.forget
    for pool in world.manager.pools:
        pool.index.forget = lambda block, index=pool.index: (
            seen.append(block in index),
            forget(index, block),
        )
    seen: list[bool] = []
    for number in range(1500):
        prompt = [1] * (rng.randrange(4) * BLOCK) + [rng.randint(1, 2) for _ in range(3)]
        world.add(request(f"r{number}", prompt, rng.randint(1, LONGEST - len(prompt))))
        for _ in range(rng.randrange(8)):
            plan = world.plan()
            world.fail(plan) if rng.random() < 0.02 else world.finish(plan, [rng.randint(1, 2)])
            steps += 1
        world.check()
        if rng.random() < 0.2:
            world.scheduler.abort([f"r{rng.randrange(number + 1)}"])
    evicted = sum(seen)
    world.scheduler.abort(list(world.outputs))
    stats = world.scheduler.stats()
    assert steps > 4000
    assert stats.preemptions_total > 200
    assert stats.prefix_hit_tokens_total > 500
    assert evicted > 200
    assert "error" in world.finished.values()
    assert stats.kv_blocks_used == 0
