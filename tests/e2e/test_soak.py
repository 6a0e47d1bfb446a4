"""Everything at random for a long time: no block is lost, and memory does not grow."""

from __future__ import annotations

import random
import time

import numpy as np
import psutil
import pytest
import torch
from test_kv_memory import load, some_tokens
from tiny_models import tiny_model

from octavo import SamplingParams
from octavo.base.errors import RequestError

WARM_UP = 0.4  # of the time, in which caches and allocators fill


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_soak_leaks_neither_blocks_nor_memory(tmp_path, pytestconfig):
    minutes = pytestconfig.getoption("--soak-minutes")
    model = tiny_model(tmp_path / "model", "qwen2_mixed")
    states = [{name: t.clone() for name, t in model.state_dict().items()}]
    generator = torch.Generator().manual_seed(1)
    states.append(
        {n: t + 0.02 * torch.randn(t.shape, generator=generator) for n, t in states[0].items()}
    )
    llm = load(
        tmp_path / "model",
        "native",
        kv_memory="130KiB",
        max_model_len=256,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        kv_swap="1MiB",
        kv_dtype="int8",
        policy="longest-prefix",
        victim="cheapest",
    )
    soak = Soak(llm, states)
    begin, sizes = time.monotonic(), []
    while (gone := time.monotonic() - begin) < 60 * minutes:
        soak.round()
        if gone > 60 * minutes * WARM_UP:
            sizes.append((soak.requests, psutil.Process().memory_info().rss))
    slope = np.polyfit(*np.array(sizes, float).T, 1)[0]
    stats = llm.stats
    print(f"{soak.requests} requests, {slope:.0f} bytes each, {stats}")
    assert stats.kv_blocks_used == stats.running == stats.waiting == 0
    assert min(stats.preemptions_total, stats.kv_copies_total, soak.updates, soak.forks) > 0
    assert slope < 1024


class Soak:
    """One engine and what is asked of it."""

    def __init__(self, llm, states) -> None:
        self.llm = llm
        self.states = states
        self.rng = random.Random(0)
        self.stems = [some_tokens(self.rng, 120) for _ in range(6)]
        self.requests = self.updates = self.forks = 0

    def round(self) -> None:
        rng, llm = self.rng, self.llm
        act = rng.choices(
            (self.crowd, self.leave, self.fork, self.update, llm.reset_prefix_cache),
            (60, 20, 20, 1, 1),
        )[0]
        act()
        assert llm.stats.kv_blocks_used == 0 or llm._local.engine._scheduler.is_loading

    def prompt(self) -> dict[str, object]:
        stem = self.rng.choice(self.stems)
        tokens = stem[: self.rng.randrange(1, 120)] + some_tokens(self.rng, self.rng.randrange(9))
        return {"prompt_token_ids": tokens, "cache_salt": self.rng.choice(["", "", "salt"])}

    def params(self) -> SamplingParams:
        rng = self.rng
        if rng.random() < 0.2:
            return SamplingParams(n=2, use_beam_search=True, max_tokens=rng.randrange(1, 12))
        return SamplingParams(n=rng.choice([1, 1, 1, 4]), max_tokens=rng.randrange(1, 60))

    def crowd(self) -> None:
        count = self.rng.randrange(1, 12)
        params = [self.params() for _ in range(count)]
        outputs = self.llm.generate([self.prompt() for _ in range(count)], params, use_tqdm=False)
        assert all(output.error is None for output in outputs)
        self.requests += count

    def leave(self) -> None:
        """Read a little of several streams."""
        streams = [self.llm.stream(self.prompt(), self.params()) for _ in range(3)]
        for stream in streams:
            for _ in range(self.rng.randrange(6)):
                next(stream, None)
        for stream in streams:
            stream.close()
        self.requests += len(streams)

    def fork(self) -> None:
        [trunk] = self.llm.generate([self.prompt()], self.params(), use_tqdm=False)
        length = len(trunk.prompt_token_ids)
        for _ in range(3):
            at = self.rng.randrange(1, length + 1)
            try:
                self.llm.fork(trunk, [5], self.params(), at_token=at)
            except RequestError as error:  # some beams do not fit
                assert "fit" in str(error)
            self.forks += 1
        self.requests += 4

    def update(self) -> None:
        stream = self.llm.stream(self.prompt(), SamplingParams(max_tokens=50))
        next(stream)
        how = self.rng.choice(["finish", "recompute", "abort"])
        self.llm.update_weights(self.rng.choice(self.states), how)
        list(stream)
        self.updates += 1
        self.requests += 1
