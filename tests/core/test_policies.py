"""Who starts, who gives way, and what is promised to whom."""

from __future__ import annotations

import random

import pytest
from core_worlds import World, layout, request


def test_longest_prefix_first_but_nobody_starves():
    world = World(layout(100), max_num_seqs=1, max_num_batched_tokens=64, policy="longest-prefix")
    stem = list(range(1, 21))
    world.add(request("stem", stem, 1))
    world.drain()
    world.add(request("stranger", [50] * 9, 1))
    for i in range(30):
        world.add(request(f"r{i}", [*stem, 60 + i], 1))
    world.drain()
    assert world.ended.index("stranger") == 17  # the stem, then 16 that share it
    assert len(world.ended) == 32


def test_the_cheapest_victim_loses_fewest_tokens():
    """Of equals the latest; shared blocks are not lost."""
    lost = {}
    for victim in ("latest", "cheapest"):
        world = World(layout(13), max_num_seqs=3, max_num_batched_tokens=64, victim=victim)
        world.add(request("a", [1] * 4, 40))
        world.add(request("b", [2] * 6, 9))
        world.add(request("c", [3] * 21, 9))
        states = dict(world.scheduler._roster.states)
        while not any(state.preemptions for state in states.values()):
            world.step()
        lost[victim] = next(name for name, state in states.items() if state.preemptions)
    assert lost == {"latest": "c", "cheapest": "b"}


@pytest.mark.parametrize("most", [1, 2])
def test_a_request_is_preempted_only_so_often(most):
    world = World(layout(8), max_num_seqs=4, max_num_batched_tokens=64, max_preemptions=most)
    counts = {}
    rng = random.Random(most)
    for i in range(60):
        world.add(request(f"r{i}", [i + 1] * rng.randrange(1, 9), rng.randrange(1, 22)))
    while world.scheduler.has_work:
        world.step()
        world.check()
        counts |= {name: s.preemptions for name, s in world.scheduler._roster.states.items()}
    assert max(counts.values()) == most
    assert set(world.ended) == set(counts) | set(world.ended)


def test_whole_admission_never_preempts():
    worlds = {
        admission: World(layout(8), max_num_seqs=4, max_num_batched_tokens=64, admission=admission)
        for admission in ("prompt", "whole")
    }
    for world in worlds.values():
        rng = random.Random(0)
        for i in range(60):
            n = rng.choice([1, 1, 3])  # three of these fit together
            prompt, most = [i + 1] * rng.randrange(1, 12 // n), rng.randrange(2, 16 // n)
            world.add(request(f"r{i}", prompt, most, {"n": n}))
        world.drain()
        assert len(world.ended) == 60
    assert worlds["prompt"].scheduler.stats().preemptions_total > 0
    assert worlds["whole"].scheduler.stats().preemptions_total == 0


def test_what_a_prompt_in_chunks_may_still_claim_is_not_given_to_others():
    """Windows take blocks chunk by chunk; a newcomer must leave room for those to come."""
    kv = layout(20, shape="window", chunk=16)
    world = World(kv, max_num_seqs=4, max_num_batched_tokens=16)
    for i in range(5):
        world.add(request(f"r{i}", [i + 1] * 40, 2))
    world.drain()
    assert world.scheduler.stats().preemptions_total == 0
    assert world.ended == [f"r{i}" for i in range(5)]
