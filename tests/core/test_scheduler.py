"""Semantics that random play does not name: order, admission, chunks, hits, preemption."""

from __future__ import annotations

import random

import pytest
from core_worlds import World, layout, request

from octavo.base.errors import ConfigError
from octavo.base.plan import Sampled, StepResult
from octavo.base.settings import SchedulerSettings


def lengths(plan) -> list[int]:
    return [row.length for row in plan.rows]


def test_decoding_goes_on_while_a_long_prompt_is_computed():
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=10)
    world.add(request("short", [1, 2], 20))
    world.step()
    world.add(request("long", [3] * 40, 2))
    for _ in range(4):
        plan = world.plan()
        assert lengths(plan) == [1, 9]
        world.finish(plan, [7])
    assert lengths(world.plan()) == [1, 4]


def test_a_resumed_long_sequence_leaves_a_token_for_everyone_behind_it():
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=10, prefix_caching=False)
    for name in "abc":
        world.add(request(name, [1] * 3, 60))
    for _ in range(30):
        world.step()
    scheduler = world.scheduler
    scheduler._preempt(scheduler._roster.running[0])
    world.step()
    plan = world.plan()
    assert lengths(plan) == [8, 1, 1]
    assert [row.sequence_id for row in plan.rows] == [3, 1, 2]  # what waited has a new id


def test_equal_prompts_added_together_compute_the_second_only_past_its_hits():
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=64)
    prompt = [random.Random(0).randrange(1, 9) for _ in range(18)]
    world.add(request("a", prompt))
    world.add(request("b", prompt))
    assert lengths(world.plan()) == [18, 2]


@pytest.mark.parametrize("length", [15, 16, 17])
def test_a_full_hit_leaves_one_token_to_compute(length):
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=64)
    prompt = list(range(1, length + 1))
    world.add(request("a", prompt, 1))
    world.step()
    world.add(request("b", prompt, 1))
    plan = world.plan()
    assert lengths(plan) == [1]
    [delta] = world.finish(plan, [7])
    assert delta.num_cached_tokens == length - 1


def test_salt_keeps_equal_prompts_apart():
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=64)
    for name, salt in (("a", ""), ("b", "x"), ("c", "y"), ("d", "x")):
        world.add(request(name, [1] * 9, cache_salt=salt))
    assert lengths(world.plan()) == [9, 9, 9, 1]


def test_without_prefix_caching_nothing_is_found():
    world = World(layout(100), prefix_caching=False, max_num_seqs=4, max_num_batched_tokens=64)
    world.add(request("a", [1] * 9))
    world.add(request("b", [1] * 9))
    assert lengths(world.plan()) == [9, 9]
    assert not world.manager.pools[0].index


def test_two_requests_that_can_only_thrash_never_run_together():
    world = World(layout(10), max_num_seqs=8, max_num_batched_tokens=64, prefix_caching=False)
    for i in range(10):
        world.add(request(f"r{i}", [i + 1] * 24, 4))  # each wants 60-70 % of the pool
    while world.scheduler.has_work:
        world.step()
        assert world.scheduler.stats().running <= 1
    assert world.scheduler.stats().preemptions_total == 0
    assert {found[0] for found in world.finished.values()} == {"length"}


def test_chunked_admission_counts_the_whole_prompt():
    """With a budget of one chunk, the second long prompt must wait for memory, not for budget."""
    world = World(layout(10), max_num_seqs=4, max_num_batched_tokens=8, prefix_caching=False)
    world.add(request("a", [1] * 24, 8))
    world.add(request("b", [2] * 24, 8))
    world.step()
    assert world.scheduler.stats().waiting == 1
    world.drain()
    assert world.scheduler.stats().preemptions_total == 0


def test_watermark_keeps_blocks_free_but_never_stops_the_only_request():
    world = World(layout(10), max_num_seqs=4, max_num_batched_tokens=64, watermark=0.4)
    world.add(request("a", [1] * 36, 2))
    world.step()
    assert world.scheduler.stats().running == 1
    world.drain()
    world.add(request("b", [2] * 12, 8))
    world.add(request("c", [3] * 16, 8))
    world.step()
    assert world.scheduler.stats().waiting == 1


def test_preempted_requests_return_first_and_lose_nothing(caplog):
    world = World(layout(6), max_num_seqs=3, max_num_batched_tokens=64)
    for i in range(3):
        world.add(request(f"r{i}", [i + 1] * 7, 14))
    while world.scheduler.has_work:
        world.step([5])
        world.check()
    assert world.scheduler.stats().preemptions_total >= 2
    assert all(world.outputs[f"r{i}"] == {0: [5] * 14} for i in range(3))
    assert world.ended == ["r0", "r1", "r2"]


def test_each_preemption_is_logged_with_what_was_lost_and_what_would_avoid_it(caplog):
    import logging

    logging.getLogger("octavo").propagate = True
    world = World(layout(4), max_num_seqs=2, max_num_batched_tokens=64)
    world.add(request("x", [1] * 7, 9))
    world.add(request("y", [2] * 7, 9))
    with caplog.at_level(logging.WARNING, "octavo"):
        world.drain()
    assert "request y preempted: " in caplog.text
    assert "--kv-memory" in caplog.text


def test_preempted_sequences_do_not_count_as_hits():
    world = World(layout(6), max_num_seqs=3, max_num_batched_tokens=64)
    for i in range(3):
        world.add(request(f"r{i}", [i + 1] * 7, 14))
    world.drain()
    stats = world.scheduler.stats()
    assert stats.preemptions_total > 0
    assert (stats.prefix_query_tokens_total, stats.prefix_hit_tokens_total) == (21, 0)


def test_priority_runs_first_and_is_preempted_last():
    world = World(
        layout(6), max_num_seqs=2, max_num_batched_tokens=64, policy="priority", watermark=0.0
    )
    world.add(request("low", [1] * 7, 14, priority=5))
    world.add(request("mid", [2] * 7, 14, priority=3))
    world.add(request("high", [3] * 7, 14, priority=-1))
    world.drain()
    assert world.ended == ["high", "mid", "low"]


def test_finish_reasons():
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=64)
    world.add(request("eos", [1], 5))
    world.add(request("length", [1], 1))
    plan = world.plan()
    deltas = world.finish(plan, [0, 9])
    assert [d.finish_reason for d in deltas] == ["stop", "length"]


def test_tokens_after_a_stop_inside_one_result_are_trimmed():
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=64)
    world.add(request("a", [1], 10))
    plan = world.plan()
    result = StepResult(plan.step, [Sampled(0, 0, [4, 0, 5])])
    [delta] = world.scheduler.update(plan, result)
    assert (delta.token_ids, delta.finish_reason) == ([4, 0], "stop")


def test_a_row_that_cannot_be_sampled_fails_alone():
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=64)
    world.add(request("bad", [1], 10))
    world.add(request("good", [2], 10))
    plan = world.plan()
    result = StepResult(plan.step, [Sampled(0, 0, [], error="NaN"), Sampled(1, 0, [5])])
    bad, good = world.scheduler.update(plan, result)
    assert (bad.finish_reason, bad.error) == ("error", "NaN")
    assert good.token_ids == [5]
    world.check()


def test_free_order_keeps_the_beginning_of_chains_longest():
    """Blocks without reusable content first, then chains, their tails first."""
    world = World(layout(10), max_num_seqs=4, max_num_batched_tokens=64)
    shared = list(range(1, 13))
    world.add(request("a", [*shared, 20], 1))
    world.add(request("b", [*shared, 21], 1))
    world.finish(world.plan(), [7])
    pool = world.manager.pools[0]
    assert list(pool.free_blocks()) == [6, 7, 8, 9, 10, 4, 5, 3, 2, 1]


def test_eviction_leaves_a_prefix_that_is_contiguous_from_the_start():
    world = World(layout(10), max_num_seqs=1, max_num_batched_tokens=64)
    prompt = list(range(1, 34))
    world.add(request("a", prompt, 1))
    world.drain()
    for taken in range(1, 8):
        world.add(request(f"x{taken}", [99 + taken] * (4 * taken + 1), 1))
        world.drain()
        prefix = world.manager.cache.prefix(request("p", prompt), prompt)
        held = [bool(b) for b in world.manager.pools[0].index.held(0, prefix, 8, whole=False)]
        assert held == sorted(held, reverse=True)
        assert any(held) or taken > 3


def test_abort_in_queue_prefill_and_decode_frees_everything():
    for steps in (0, 1, 6):
        world = World(layout(50), max_num_seqs=2, max_num_batched_tokens=8)
        world.add(request("a", [1] * 30, 10))
        for _ in range(steps):
            world.step()
        world.scheduler.abort("a")
        world.scheduler.abort("unknown")
        assert not world.scheduler.has_work
        pool = world.manager.pools[0]
        assert pool.num_free == pool.num_blocks - 1


def test_the_budget_must_let_every_sequence_advance():
    with pytest.raises(ConfigError, match="max_num_batched_tokens"):
        SchedulerSettings(max_num_seqs=10, max_num_batched_tokens=9)
