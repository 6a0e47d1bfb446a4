"""Recurrent states: where rows end, what is found again, who shares, who waits."""

from __future__ import annotations

import random

import pytest
from core_worlds import World, layout, request

from octavo.core.prefix import Prefix
from octavo.core.state_index import StateIndex

BLOCK, INTERVAL = 4, 8
PROMPT = list(range(1, 22))  # 21 tokens


def world(shape="full state", states=40, running=None, **options):
    settings = {"max_num_seqs": 8, "max_num_batched_tokens": 64} | options
    return World(layout(100, BLOCK, shape, 2**31, INTERVAL, states, running), **settings)


def ask(world, name, prompt, max_tokens=2, **options):
    """Run one request to its end: tokens hit, and why not more."""
    world.add(request(name, prompt, max_tokens, **options))
    delta = None
    while world.scheduler.has_work:
        found = world.step()
        delta = delta or next(iter(found), None)
    return delta.num_cached_tokens, delta.miss


def lengths(plan):
    return [row.length for row in plan.rows]


# ---- rows ----


@pytest.mark.parametrize("shape,group", [("full state", 1), ("state full", 0), ("state", 0)])
def test_rows_end_after_every_interval_and_after_the_prompt(shape, group):
    """Each with the whole table: what the row before wrote is what the next one reads."""
    mine = world(shape)
    mine.add(request("a", PROMPT, 8))
    rows = []
    while mine.scheduler.has_work:
        plan = mine.plan()
        rows += plan.rows
        mine.finish(plan, [7])
    assert [row.length for row in rows] == [8, 8, 5] + [1] * 7
    tables = [row.new_blocks[group] for row in rows]
    assert [len(table) for table in tables] == [2] * len(rows)
    assert [source for source, _ in tables] == [0] + [target for _, target in tables[:-1]]


def test_a_budget_in_between_moves_no_end():
    mine = world(max_num_batched_tokens=14)
    mine.add(request("a", PROMPT))
    mine.add(request("b", [9, *PROMPT]))
    plans = []
    while mine.scheduler.has_work:
        plans.append(mine.plan())
        mine.finish(plans[-1], [7])
    assert [lengths(plan) for plan in plans[:4]] == [[8, 6], [8, 2], [5, 8], [1, 6]]


def test_a_prompt_that_came_before_ends_a_row_before_its_last_token():
    """Once: the third finds the state there."""
    mine = world()
    rows = []
    for name in "abc":
        mine.add(request(name, PROMPT, 1))
        rows.append([])
        while mine.scheduler.has_work:
            plan = mine.plan()
            rows[-1] += lengths(plan)
            mine.finish(plan, [7])
    assert rows == [[8, 8, 5], [4, 1], [1]]


def test_rows_are_not_cut_where_nothing_is_kept():
    mine = world(prefix_caching=False)
    mine.add(request("a", PROMPT))
    assert lengths(mine.plan()) == [21]


# ---- hits ----


@pytest.mark.parametrize("index", ["hash", "radix"])
@pytest.mark.parametrize("shape", ["full state", "window state", "state", "mixed state"])
@pytest.mark.parametrize("same,hit", [(7, 0), (8, 8), (15, 8), (16, 16), (20, 16)])
def test_hits_end_where_there_is_a_state(shape, index, same, hit):
    mine = world(shape, prefix_index=index)
    ask(mine, "a", PROMPT)
    miss = "cold" if shape == "state" else "diverged"
    assert ask(mine, "b", [*PROMPT[:same], 99, 98]) == (hit, miss)


@pytest.mark.parametrize("shape", ["full state", "state"])
def test_the_next_turn_computes_what_follows_the_answer_or_the_prompt(shape):
    mine = world(shape)
    ask(mine, "a", PROMPT, 6)
    said = [*PROMPT, *mine.outputs["a"][0]]
    assert len(said) == 27
    assert ask(mine, "b", [*said, 50, 51])[0] == 26  # the last token drawn was never computed
    assert ask(mine, "c", [*PROMPT, 60, 61])[0] == 21
    assert ask(mine, "d", PROMPT) == (16, "cold" if shape == "state" else "state")


@pytest.mark.parametrize("length", range(9, 25))
def test_why_a_prompt_that_came_before_is_not_found_whole(length):
    """All its tokens are there: it did not diverge, wherever in a block it ends."""
    mine = world()
    prompt = list(range(1, length + 1))
    ask(mine, "a", prompt, 9)
    kept = (length - 1) // INTERVAL * INTERVAL
    assert ask(mine, "b", [*prompt[:-1], 99, 98]) == (kept, "diverged")
    assert ask(mine, "c", [*prompt[:kept], 97]) == (kept, None)
    assert ask(mine, "d", prompt) == (kept, None if kept == length - 1 else "state")
    assert ask(mine, "e", prompt) == (length - 1, None)


@pytest.mark.parametrize("index", ["hash", "radix"])
def test_a_state_is_no_hit_where_a_window_misses_what_lies_before_it(index):
    mine = world("window state", prefix_index=index)
    prompt = list(range(1, 38))
    ask(mine, "a", prompt)
    pool = mine.manager.pools[0]
    prefix = mine.manager.cache.prefix(request("p", prompt), prompt)
    pool.forget(pool.index.held(0, prefix, 9, whole=False)[4])  # tokens 16 to 19
    assert ask(mine, "b", [*prompt[:31], 99])[0] == 16


def test_a_state_is_found_by_its_own_kind_alone():
    mine = world()
    ask(mine, "a", PROMPT)
    assert ask(mine, "b", PROMPT, cache_salt="s")[0] == 0
    assert ask(mine, "c", PROMPT, adapter="x")[0] == 0
    mine.scheduler.begin_epoch("next")
    assert ask(mine, "d", PROMPT)[0] == 0


def test_no_state_is_named_inside_a_block_with_a_key():
    mine = world("state")
    ask(mine, "a", PROMPT[:10], block_keys={2: b"image"})
    assert ask(mine, "b", PROMPT, block_keys={2: b"image"})[0] == 8
    assert ask(mine, "c", PROMPT, block_keys={1: b"image"})[0] == 0


def test_a_state_is_not_read_in_the_step_that_writes_it():
    mine = world()
    mine.add(request("a", PROMPT[:8]))
    mine.add(request("b", PROMPT[:10]))
    assert lengths(mine.plan()) == [8, 8]


def test_a_failed_step_leaves_no_state_to_be_found():
    mine = world()
    mine.add(request("a", PROMPT))
    mine.finish(mine.plan(), [7])
    plan = mine.plan()
    mine.spoil(plan)
    mine.fail(plan)
    mine.check()
    assert ask(mine, "b", PROMPT)[0] == 8


def test_states_are_given_up_in_the_order_of_use():
    """Blocks that hold nothing to be found first."""
    mine = world("state", states=8)
    ask(mine, "a", PROMPT, 1)  # after 8, 16 and 21 tokens
    pool = mine.manager.pools[0]
    kept = list(pool.free_blocks())[-3:]
    ask(mine, "b", [*PROMPT[:8], 99], 1)  # uses the first of them again, and leaves its own
    assert list(pool.free_blocks())[-4:-1] == [kept[1], kept[2], kept[0]]
    ask(mine, "c", [70 + i for i in range(80)], 1)
    assert ask(mine, "d", [*PROMPT, 5]) == (0, "evicted")


# ---- sharing ----


def test_answers_and_forks_share_a_state_until_they_part():
    mine = world()
    mine.add(request("r", PROMPT[:7], 4, {"n": 3}))
    mine.step()
    states = mine.manager.pools[1]
    assert states.num_used == 1
    plan = mine.plan()
    assert len({row.new_blocks[1][0] for row in plan.rows}) == 1
    mine.finish(plan, [5, 6, 7])
    assert states.num_used == 3
    assert not any(copy.pool == 1 for copy in plan.copies)
    mine.add(request("f", [*PROMPT[:7], *mine.outputs["r"][0], 9], fork_of="r"))
    assert [row.start for row in mine.plan().rows] == [8, 8, 8, 8]


def test_what_was_preempted_goes_on_from_its_state():
    mine = world()
    mine.add(request("a", PROMPT, 9))
    for _ in range(5):
        mine.step()
    mine.scheduler._preempt(mine.scheduler._roster.running[0])
    mine.step()
    mine.check()
    plan = mine.plan()
    assert [(row.start, row.length) for row in plan.rows] == [(24, 1)]


def test_what_must_be_computed_again_ends_a_row_after_the_prompt_too():
    mine = world()
    mine.add(request("a", PROMPT, 9))
    for _ in range(5):
        mine.step()
    mine.scheduler._preempt(mine.scheduler._roster.running[0])
    for pool in mine.manager.pools:
        pool.clear()
    rows = []
    while mine.scheduler.has_work:
        plan = mine.plan()
        rows += lengths(plan)
        mine.finish(plan, [7])
    assert rows == [8, 8, 5, 3, *[1] * 5]


@pytest.mark.parametrize("early", [True, "never"])
def test_a_beam_search_leaves_the_states_of_answers_alone(early):
    """Not one for each beam of each step, which would flush what others left."""
    mine = world(states=20)
    ask(mine, "a", PROMPT)
    beams = {"n": 3, "use_beam_search": True, "early_stopping": early}
    mine.add(request("beams", [50, 51, 52], 30, beams))
    mine.drain()
    answers = mine.outputs["beams"]
    assert max(len(answer) for answer in answers.values()) > 12
    assert ask(mine, "b", [*PROMPT, 60])[0] == 21
    for i, answer in answers.items():
        said = [50, 51, 52, *answer]
        assert ask(mine, f"next {i}", [*said, 61], 1)[0] == len(said) - 1


# ---- few states ----


@pytest.mark.parametrize("shape", ["state", "full state"])
@pytest.mark.parametrize("states,most", [(2, 1), (5, 2), (6, 3)])
@pytest.mark.parametrize("caching", [True, False])
def test_as_many_run_as_there_are_states_for(shape, states, most, caching):
    mine = world(shape, states, prefix_caching=caching)
    for i in range(4):
        mine.add(request(f"r{i}", [i + 1] * 9, 4, {"n": 1 + i}))
    seen = set()
    while mine.scheduler.has_work:
        mine.step()
        mine.check()
        seen.add(mine.scheduler.stats().running)
    assert max(seen) == most
    assert [len(ends) for ends in mine.finished.values()] == [1, 2, 3, 4]
    assert mine.scheduler.stats().preemptions_total == 0


@pytest.mark.parametrize("shape", ["state", "full state"])
def test_those_that_run_leave_what_is_kept_for_others(shape):
    """Though there were states for 5, it was planned for 2, and 6 to be found again."""
    mine = world(shape, states=10, running=2)
    ask(mine, "first", PROMPT)  # leaves states after 8, 16, 21 and 22 tokens
    for i in range(5):
        mine.add(request(f"r{i}", [30 + i] * 3, 9))
    for _ in range(4):
        mine.step()
    assert mine.scheduler.stats().running == 2
    prefix = mine.manager.cache.prefix(request("p", PROMPT), PROMPT)
    assert mine.manager.cache.matcher(prefix, len(PROMPT)).hit().tokens == len(PROMPT)


def test_beams_fit_where_each_has_two_states():
    kv = layout(100, BLOCK, "full state", 64, INTERVAL, 6)
    assert kv.most_sequences == 3
    assert kv.fits_together(3, 20, 8)
    assert not kv.fits_together(4, 20, 8)
    mine = World(kv, max_num_seqs=8, max_num_batched_tokens=64)
    mine.add(request("other", [1] * 9, 20))
    mine.add(request("beams", [2] * 9, 6, {"n": 3, "use_beam_search": True}))
    mine.drain()
    assert len(mine.finished["beams"]) == 3


# ---- the index ----


def test_the_index_equals_a_dictionary_of_tokens():
    rng = random.Random(0)
    index, known = StateIndex(), {}
    hits = 0
    for holder in range(1, 3000):
        tokens = [rng.randint(1, 2) for _ in range(rng.randrange(1, 14))]
        keys = {rng.randrange(4): rng.choice([b"x", b"y"])} if rng.random() < 0.3 else {}
        prefix = Prefix(rng.choice([b"r", b"s"]), BLOCK, tokens, keys)
        fresh = {held for held in known.values() if rng.random() < 0.2}
        places = {length: _place(prefix, length) for length in range(1, len(tokens) + 1)}
        most = rng.randint(0, len(tokens))
        there = [n for n in range(1, most + 1) if known.get(places[n], 0) not in {0, *fresh}]
        there = [n for n in there if n % BLOCK == 0 or n // BLOCK not in keys]
        best = max(there, default=0)
        assert index.longest(prefix, most, fresh) == (best, known[places[best]] if best else 0)
        hits += best > 0
        length = rng.randint(1, len(tokens))
        told = places[length] not in known and not (length % BLOCK and length // BLOCK in keys)
        assert index.publish(prefix, length, holder) == told
        if told:
            known[places[length]] = holder
        assert (holder in index) == told
        if rng.random() < 0.3:
            gone = rng.choice(list(known))
            index.forget(known[gone])
            index.forget(known.pop(gone))
        assert len(index) == len(known)
    assert hits > 500


def _place(prefix, length):
    """What a state depends on."""
    keys = {block: key for block, key in prefix.keys.items() if block * BLOCK < length}
    return prefix.digest(0), tuple(keys.items()), tuple(prefix.token_ids[:length])
