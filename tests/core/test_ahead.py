"""Steps planned ahead, and drafts: the same answers from a model that is a function of its tokens;
what is wasted; which number of drafts is chosen."""

from __future__ import annotations

import hashlib
import random

import pytest
from core_worlds import EOS, World, generated, layout, request

from octavo.base.plan import Row, Sampled, StepPlan, Told
from octavo.base.repetition import RepetitionDetection
from octavo.core.drafting import MOST_RETRY_STEPS, Drafting


def next_token(tokens: list[int]) -> int:
    """Of a model that often repeats itself and seldom ends."""
    first = hashlib.sha256(bytes(tokens[-3:])).digest()[0]
    return EOS if first < 8 else 1 + first % 3


class ModelWorld(World):
    """Its device draws what `next_token` says; drafts are right up to some place."""

    def _draw(self, row: Row, child: int, token: int) -> Sampled:
        drawn = super()._draw(row, child, token)
        known = [*self.known[row.sequence_id], *drawn.token_ids[:-1]]
        drawn.token_ids[-1] = next_token([*known[:-1], (known[-1] + child) % 4])
        return drawn

    def _draft(self, plan: StepPlan) -> None:
        super()._draft(plan)
        for sid, accepted in self.drafted.items():
            row = next(row for row in plan.rows if row.sequence_id == sid)
            known = list(self.known[sid])
            for i in range(len(accepted)):
                accepted[i] = next_token([*known[:-1], (known[-1] + row.draws[-1]) % 4])
                known.append(accepted[i])


def workload(seed: int):
    rng = random.Random(seed)
    for number in range(rng.randint(1, 12)):
        prompt = [rng.randint(1, 3) for _ in range(rng.randint(1, 20))]
        params = {"n": rng.choice([1, 1, 1, 3])}
        if rng.random() < 0.2:
            params["repetition_detection"] = RepetitionDetection(max_pattern_size=3, min_count=3)
        yield request(f"r{number}", prompt, rng.randint(1, 20), params)


def play(seed: int, ahead: bool = False, drafts: int = 0, most: int = 12) -> ModelWorld:
    rng = random.Random(seed)
    chunk = max(most, generated(ahead, drafts))
    world = ModelWorld(
        layout(14, 4, rng.choice(["one", "split", "mixed"]), chunk),
        ahead=ahead,
        drafts=drafts,
        max_num_seqs=4,
        max_num_batched_tokens=most,
    )
    for asked in workload(seed):
        world.add(asked)
        for _ in range(rng.randrange(4)):
            world.step()
    world.drain()
    world.check()
    return world


@pytest.mark.parametrize("way", [(True, 0), (False, 4), (True, 4)])
def test_answers_of_random_workloads_are_the_same(way):
    wasted = accepted = 0
    for seed in range(60):
        plain, other = play(seed), play(seed, *way)
        assert other.outputs == plain.outputs
        assert other.finished == plain.finished
        assert other.wasted <= sum(map(len, other.finished.values()))
        wasted += other.wasted
        accepted += other.scheduler.stats().accepted_tokens_total
    assert (wasted > 40) == way[0]
    assert (accepted > 300) == (way[1] > 0)


def test_no_step_is_planned_beyond_the_last_token():
    world = ModelWorld(layout(20), ahead=True, max_num_seqs=2, max_num_batched_tokens=64)
    world.add(request("a", [1] * 7, 9))
    world.add(request("b", [2] * 5, 1))
    world.drain()
    assert world.tokens <= (7 + 9 - 1) + 5
    assert len(world.outputs["b"][0]) == 1
    assert world.wasted <= 1


def test_an_abort_between_a_step_and_its_result_leaves_nothing():
    world = ModelWorld(layout(20), ahead=True, drafts=3, max_num_seqs=4, max_num_batched_tokens=64)
    for name in "abc":
        world.add(request(name, [1] * 5, 30))
    for step, name in enumerate("abc"):
        for _ in range(step + 1):
            world.step()
        world.scheduler.abort(name)
        world.finished[name][0] = "abort"
        world.check()
    world.drain()
    assert world.scheduler.stats().kv_blocks_used == 0


def learn(drafting: Drafting, limit: int, rows: int, tokens: int, seconds: float) -> None:
    plan_rows = [Row(i, 5, 1, 0, [], (0,), drafts=limit) for i in range(rows)]
    drawn = [Sampled(i, 0, [1] * (tokens // rows), drafts=limit) for i in range(rows)]
    plan = StepPlan(1, [], plan_rows, [], limit=limit)
    drafting.learn(plan, drawn, seconds)


def shares(drafting: Drafting, rows: int, gain: float, steps: int = 4000) -> dict[int, float]:
    """How often each limit is chosen where a draft brings `gain` tokens and takes 0.3 s."""
    chosen = {0: 0, 4: 0, 8: 0}
    rng = random.Random(0)
    for _ in range(steps):
        limit = drafting.limit(rows)
        chosen[limit] += 1
        seconds = (1 + 0.3 * limit) * rng.uniform(0.9, 1.1)
        learn(drafting, limit, rows, rows * (1 + int(limit * gain + rng.random())), seconds)
    return {limit: count / steps for limit, count in chosen.items()}


def test_drafts_are_switched_off_where_they_do_not_pay():
    assert shares(Drafting(8), rows=4, gain=0.01)[0] > 0.97


def test_drafts_are_kept_where_they_pay():
    assert shares(Drafting(8), rows=4, gain=0.9)[8] > 0.97


def test_numbers_of_rows_are_judged_apart_and_a_loser_comes_back():
    drafting = Drafting(8)
    shares(drafting, rows=16, gain=0.0)
    assert shares(drafting, rows=1, gain=0.9)[8] > 0.97
    assert shares(drafting, rows=16, gain=0.9, steps=8 * MOST_RETRY_STEPS)[0] < 0.5


def test_without_drafts_there_is_no_choice():
    assert {Drafting(0).limit(rows) for rows in range(40)} == {0}


def test_what_a_failed_step_should_have_written_is_not_kept_in_the_swap_tier():
    """Its sequence has gone, and the next plan evicts the blocks."""
    world = World(
        layout(6, 4, "one", 64),
        swap=10_000,
        ahead=True,
        max_num_seqs=4,
        max_num_batched_tokens=64,
    )
    world.add(request("a", [1] * 12, 4))
    world.step()
    world.scheduler.abort("a")
    world.finished["a"][0] = "abort"
    world.add(request("b", [2] * 23, 1))  # needs all blocks
    world.step(fails=True)
    assert not world.saved
    world.drain()
    world.add(request("c", [1] * 12, 2))
    world.drain()
    assert world.finished["c"] == {0: "length"}


def test_a_request_that_can_tell_nothing_yet_holds_nothing():
    """One before it takes all that a step may tell; the step fails, and gives garbage to nobody."""
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=512)
    world.add(request("writes", [1] * 40, 2))
    world.add(request("tells", [2] * 100, 2, {"prompt_logprobs": 0}))
    told = {"prompt_logprobs": 0, "prompt_logprob_start": 41}
    world.add(request("waits", [1] * 60, 2, told))
    plan = world.plan()
    assert len(plan.rows) == 2
    assert world.scheduler.stats().waiting == 1
    world.spoil(plan)
    world.fail(plan)
    world.drain()
    assert world.finished["waits"] == {0: "length"}


def test_a_prompt_that_cannot_be_told_ends_its_request_alone():
    world = World(layout(100), max_num_seqs=4, max_num_batched_tokens=64)
    world.add(request("bad", [1] * 9, 5, {"prompt_logprobs": 0}))
    world.add(request("good", [2] * 9, 5))
    plan = world.plan()
    result = world.draw(plan, [7])
    result.told[:] = [Told(0, 1, [], "NaN")]
    deltas = world.scheduler.update(plan, result)
    assert [(d.request_id, d.finish_reason, d.error) for d in deltas] == [
        ("bad", "error", "NaN"),
        ("good", None, None),
    ]
    world.check()


def test_drafts_take_only_what_nobody_else_wants():
    """A newcomer starts as soon as without them, and nobody is preempted."""
    for drafts in (0, 8):
        world = ModelWorld(
            layout(16, 4, "one", 64), drafts=drafts, max_num_seqs=4, max_num_batched_tokens=64
        )
        world.add(request("old", [1] * 20, 8))
        world.step()
        world.add(request("new", [2] * 34, 2))
        plan = world.plan()
        assert plan.new, "it waits"
        world.finish(plan, [7])
        world.drain()
        assert world.scheduler.stats().preemptions_total == 0


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"prompt_logprobs": 0},
        {"prompt_logprobs": 0, "prompt_logprob_start": 9},
        {"skip_reading_prefix_cache": True},
    ],
)
def test_what_is_not_looked_for_is_not_missed(params):
    world = World(layout(60), max_num_seqs=4, max_num_batched_tokens=512)
    for name in ("first", "again"):
        world.add(request(name, [1] * 21, 2, params))
        [sequence] = world.scheduler._roster.live.values()
        world.drain()
    assert sequence.state.miss is None
