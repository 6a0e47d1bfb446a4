"""Ctrl-C at random moments: nothing waits for ever, nothing leaks, answers that end are whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
from core_worlds import World, generated, layout, request

from octavo.base.plan import StepPlan, StepResult
from octavo.engine.engine import Engine


class Executor:
    """The world's device; whoever waits for it may be interrupted."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world, self._rng = world, rng

    def submit(self, plan: StepPlan) -> StepPlan:
        self._world.compute(plan)
        return plan

    def finish(self, plan: StepPlan) -> StepResult:
        if self._rng.random() < 0.03:
            self._world.spoil(plan)
            raise KeyboardInterrupt
        return self._world.draw(plan, [7])


def interrupted_world(seed: int, ahead: bool, drafts: int, swap: int) -> World:
    rng = random.Random(seed)
    most = rng.randint(8, 24)
    shape = rng.choice(["one", "split", "window", "mixed", "mixed split"])
    world = World(
        layout(12, 4, shape, max(most, generated(ahead, drafts))),
        ahead=ahead,
        drafts=drafts,
        swap=swap,
        max_num_seqs=4,
        max_num_batched_tokens=most,
        watermark=0.0,
    )
    nothing: Any = None
    engine = Engine(nothing, world.scheduler, Executor(world, rng), nothing, ahead)  # type: ignore[arg-type]

    def step() -> None:
        try:
            world._deliver(engine.step())
        except KeyboardInterrupt:
            world._deliver(engine.take_deltas())

    for number in range(10):
        length = rng.randint(1, 40)
        shared = [1] * rng.choice([0, 4, 8, 16, 20])
        prompt = (shared + [rng.randint(1, 3) for _ in range(40)])[:length]
        params: dict[str, Any] = {"n": rng.choice([1, 1, 3])}
        if rng.random() < 0.3:
            start = rng.choice([0, 9, 17])
            params |= {"prompt_logprobs": 0, "prompt_logprob_start": start}
        world.add(request(f"r{number}", prompt, rng.randint(1, 48 - length), params))
        for _ in range(rng.randrange(5)):
            step()
    for _ in range(3000):
        if not engine.has_work:
            break
        step()
    assert not engine.has_work, "it never ends"
    return world


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("drafts", [0, 4])
@pytest.mark.parametrize("swap", [0, 2000])
def test_an_interrupt_loses_nothing_but_its_steps(ahead, drafts, swap):
    errors = 0
    for seed in range(15):
        world = interrupted_world(seed, ahead, drafts, swap)
        world.check()
        assert all(pool.num_free == pool.num_blocks - 1 for pool in world.manager.pools)
        assert len(world.known) <= 4, "the worker forgets nobody"
        assert all(len(world.finished[name]) == world.widths[name] for name in world.outputs)
        errors += sum("error" in ends.values() for ends in world.finished.values())
    assert errors > 10
