"""What is shared, copied, kept apart and explained."""

from __future__ import annotations

import pytest
from core_worlds import World, layout, request

from octavo.core.kv_manager import KVManager
from octavo.core.prefix import root_digest

ROOT = {"model": "m", "kernels": "k", "dtype": "f", "kv_dtype": "f", "weights": "w", "epoch": "e"}
PROMPT = list(range(1, 12))


def world(**options):
    return World(layout(100), **({"max_num_seqs": 8, "max_num_batched_tokens": 64} | options))


def ask(world, name, prompt, max_tokens=2, **options):
    """Run one request to its end: tokens hit, and why not more."""
    world.add(request(name, prompt, max_tokens, **options))
    plan = world.plan()
    delta = world.finish(plan, [7])[0]
    world.drain()
    return delta.num_cached_tokens, delta.miss


@pytest.mark.parametrize("changed", sorted(ROOT))
def test_nothing_is_found_across_what_kv_depends_on(changed):
    other = ROOT | {changed: "other"}
    assert root_digest(ROOT) != root_digest(other)
    manager, again = (KVManager(layout(9), root) for root in (ROOT, other))
    tokens = list(PROMPT)
    digests = [m.cache.prefix(request("r", tokens), tokens).digest(2) for m in (manager, again)]
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    "options,hit",
    [
        ({}, 10),
        ({"owner": "another"}, 0),
        ({"priority": 3}, 10),
        ({"params": {"temperature": 0.5, "n": 2}}, 10),
        ({"cache_salt": "salt"}, 0),
    ],
)
def test_who_shares_with_whom(options, hit):
    mine = world()
    ask(mine, "a", PROMPT)
    assert ask(mine, "b", PROMPT, **options)[0] == hit


@pytest.mark.parametrize("index", ["hash", "radix"])
@pytest.mark.parametrize(
    "keys,hit",
    [
        ({1: b"image 0"}, 10),
        ({1: b"other 0"}, 4),  # another image
        ({1: b"image 4"}, 4),  # the same one, elsewhere in it
        ({}, 4),
        ({0: b"image 0", 1: b"image 4"}, 0),
    ],
)
def test_what_a_block_depends_on_besides_tokens(keys, hit, index):
    mine = world(prefix_index=index)
    ask(mine, "a", PROMPT, block_keys={1: b"image 0"})
    assert ask(mine, "b", PROMPT, block_keys=keys)[0] == hit


def test_adapters_share_nothing():
    mine = world()
    ask(mine, "a", PROMPT, adapter="x")
    assert ask(mine, "b", PROMPT, adapter="x") == (10, None)
    assert ask(mine, "c", PROMPT, adapter="y") == (0, "adapter")


def test_a_salt_is_shared_by_owners_and_is_never_an_owner():
    mine = world()
    ask(mine, "a", PROMPT, owner="o", cache_salt="s")
    assert ask(mine, "b", PROMPT, owner="p", cache_salt="s")[0] == 10
    ask(mine, "c", PROMPT, owner="o")
    assert ask(mine, "d", PROMPT, owner="q", cache_salt="o")[0] == 0


@pytest.mark.parametrize("place", range(len(PROMPT) - 1))
def test_a_hit_ends_at_the_first_token_that_differs(place):
    mine = world()
    ask(mine, "a", PROMPT)
    other = [*PROMPT[:place], 99, *PROMPT[place + 1 :]]
    assert ask(mine, "b", other) == (place, "diverged")


def test_equal_tokens_under_another_parent_are_not_taken():
    mine = world()
    ask(mine, "a", [1, 2, 3, 4, 5, 6, 7, 8])
    assert ask(mine, "b", [9, 9, 9, 9, 5, 6, 7, 8])[0] == 0


def test_a_finished_tail_is_found_by_the_next_turn():
    """All but the token drawn last, which was never computed."""
    mine = world()
    ask(mine, "a", PROMPT, max_tokens=4)
    said = mine.outputs["a"][0]
    assert ask(mine, "b", [*PROMPT, *said, 50, 51]) == (len(PROMPT) + 3, "cold")
    assert mine.scheduler.stats().kv_copies_total == 1


def test_misses():
    mine = world()
    assert ask(mine, "cold", PROMPT, owner="o") == (0, "cold")
    assert ask(mine, "whole", PROMPT, owner="o") == (10, None)
    assert ask(mine, "salt", PROMPT, owner="o", cache_salt="s") == (0, "salt")
    assert ask(mine, "another's", PROMPT, owner="p", cache_salt="p") == (0, "cold")
    mine.scheduler.begin_epoch("next")
    assert ask(mine, "epoch", PROMPT, owner="o", cache_salt="s") == (0, "epoch")
    assert ask(world(prefix_caching=False), "off", PROMPT) == (0, "disabled")
    assert mine.manager.reset()
    assert ask(mine, "gone", PROMPT, owner="o", cache_salt="s") == (0, "evicted")


def test_eviction_is_told_where_the_hit_ends():
    mine = World(layout(10), max_num_seqs=1, max_num_batched_tokens=64)
    prompt = list(range(1, 30))
    ask(mine, "a", prompt)
    ask(mine, "b", [90] * 18)
    hit, miss = ask(mine, "c", prompt)
    assert 0 < hit < 28
    assert miss == "evicted"


def test_the_first_writer_of_a_shared_tail_copies_it():
    mine = world()
    mine.add(request("r", PROMPT[:6], 3, {"n": 3}))
    assert mine.step() and mine.scheduler.stats().kv_blocks_used == 2
    plan = mine.plan()
    assert len(plan.copies) == 2  # the last holder writes in place
    assert mine.scheduler.stats().kv_blocks_used == 4
    mine.finish(plan, [7, 8, 9])
    mine.drain()
    assert mine.tokens == 6 + 3 * 2


def test_a_copy_is_not_made_of_what_is_not_written_yet():
    mine = world()
    mine.add(request("a", PROMPT))
    mine.add(request("b", PROMPT))
    plan = mine.plan()
    assert [row.length for row in plan.rows] == [11, 3]
    assert plan.copies == []
