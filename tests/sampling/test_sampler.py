from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sampling_rows import VOCAB, drawn_tokens, make_row, random_logits, random_row

from octavo.base.sampling_params import SamplingParams
from octavo.sampling.draw import draw
from octavo.sampling.rows import Drawn, SamplingRow
from octavo.sampling.sampler import sample


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("vocab,rows,dtype", [(VOCAB, 60, "float32"), (50257, 24, "bfloat16")])
def test_row_alone_equals_row_in_any_batch(vocab: int, rows: int, dtype: str, threads: int) -> None:
    rng = np.random.default_rng(threads)
    logits = random_logits(rng, rows, vocab).to(getattr(torch, dtype))
    batch = [random_row(rng, vocab) for _ in range(rows)]
    alone = [sample(logits[i : i + 1], [row])[0] for i, row in enumerate(batch)]
    assert all(drawn.error is None for drawn in alone)
    for _ in range(5):
        order = rng.permutation(rows)[: rng.integers(2, rows + 1)]
        assert sample(logits[order], [batch[i] for i in order]) == [alone[i] for i in order]


def test_logits_are_unchanged() -> None:
    rng = np.random.default_rng(3)
    logits = random_logits(rng, 20, VOCAB)
    before = logits.clone()
    sample(logits, [random_row(rng, VOCAB) for _ in range(20)])
    assert torch.equal(logits, before)


def test_nothing_to_sample() -> None:
    assert sample(torch.empty(0, VOCAB), []) == []


@pytest.mark.parametrize("by", ["seed", "child", "position"])
def test_draws_follow_the_distribution(by: str) -> None:
    count, vocab = 50_000, 100
    logits = torch.linspace(3, 0, vocab).roll(37)
    known = np.zeros(count, dtype=np.int32)
    rows = [
        SamplingRow(
            SamplingParams(seed=i if by == "seed" else 5),
            i if by == "child" else 0,
            i if by == "position" else 9,
            0,
            known,
            (),
        )
        for i in range(count)
    ]
    seen = np.bincount(drawn_tokens(logits.expand(count, -1), rows), minlength=vocab)
    expected = count * logits.double().softmax(0).numpy()
    chi2 = ((seen - expected) ** 2 / expected).sum()
    assert chi2 < vocab - 1 + 4 * math.sqrt(2 * (vocab - 1))


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[:, [250, 70, 71]] = 3.0
    rows = [make_row(temperature=0.0), make_row(temperature=9e-6)]
    assert drawn_tokens(logits, rows) == [70, 70]


def test_ties_at_the_edge_of_top_k_all_survive() -> None:
    # 100 equal tokens, more than any shortcut over the likeliest few would see.
    logits = torch.zeros(2000, VOCAB)
    logits[:, 150:250] = 5.0
    rows = [make_row(top_k=3, seed=seed) for seed in range(2000)]
    assert set(drawn_tokens(logits, rows)) == set(range(150, 250))


@pytest.mark.parametrize("controls", [{"top_p": 1e-9}, {"top_k": 1}, {"min_p": 1.0}])
def test_the_likeliest_token_always_survives(controls: dict[str, Any]) -> None:
    logits = random_logits(np.random.default_rng(4), 50, VOCAB)[1::2]
    rows = [make_row(seed=i, temperature=2.0, **controls) for i in range(25)]
    assert drawn_tokens(logits, rows) == logits.argmax(-1).tolist()


@pytest.mark.parametrize("controls", [{"top_p": 0.9}, {"top_k": 4}, {"top_k": 99}, {"min_p": 0.5}])
def test_extreme_noise_draws_the_first_and_last_survivor(controls: dict[str, Any]) -> None:
    logits = torch.full((2, VOCAB), -9.0)
    logits[:, 100:200:25] = torch.tensor([2.0, 2.1, 1.9, 2.0])
    logits[:, 190:285] = 1.8 if controls == {"top_k": 99} else -9.0
    params = [make_row(**controls).params] * 2
    last = 284 if controls == {"top_k": 99} else 175
    assert draw(logits, params, [0.0, 1 - 2.0**-53]).tolist() == [100, last]


def test_tiny_temperature_does_not_overflow() -> None:
    logits = torch.full((1, VOCAB), -1e38)
    logits[0, 7] = 1e38
    assert sample(logits, [make_row(temperature=1e-4)]) == [Drawn(7)]


def test_top_k_beyond_the_vocabulary_is_off() -> None:
    logits = random_logits(np.random.default_rng(5), 1, VOCAB)
    tokens = [drawn_tokens(logits, [make_row(seed=3, top_k=k)]) for k in (0, VOCAB, 10**12)]
    assert tokens[0] == tokens[1] == tokens[2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_unusable_logits_fail_their_row_alone(bad: float, temperature: float) -> None:
    rng = np.random.default_rng(6)
    logits = random_logits(rng, 9, VOCAB)
    rows = [random_row(rng, VOCAB) for _ in range(9)]
    rows[4] = make_row(temperature=temperature, top_p=0.9, top_k=100, logprobs=3)
    sound = sample(logits, rows)
    logits[4] = bad
    broken = sample(logits, rows)
    assert broken[4].token_id == -1 and broken[4].error and broken[4].logprobs is None
    assert broken[:4] + broken[5:] == sound[:4] + sound[5:]


def test_one_nan_is_found_even_below_a_mask() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 11] = math.nan
    [drawn] = sample(logits, [make_row(stop_ids=(11,), min_tokens=5)])
    assert drawn.error == "the model's logits contain nan"


def test_masking_everything_is_an_error() -> None:
    row = make_row(stop_ids=tuple(range(8)), min_tokens=1)
    assert sample(torch.zeros(1, 8), [row])[0].error


def test_logprobs_are_the_models_own() -> None:
    rng = np.random.default_rng(7)
    logits = random_logits(rng, 40, VOCAB)
    rows = [random_row(rng, VOCAB) for _ in range(40)]
    for logit, row, drawn in zip(logits.double(), rows, sample(logits, rows), strict=True):
        if row.params.logprobs is None:
            assert drawn.logprobs is None
            continue
        expected = logit.log_softmax(0)
        likeliest = sorted(range(VOCAB), key=lambda t: (-expected[t], t))[: row.params.logprobs]
        found = drawn.logprobs
        assert found is not None and found.token_id == drawn.token_id
        assert found.logprob == pytest.approx(expected[drawn.token_id].item(), abs=1e-5)
        assert found.rank == 1 + int((expected > expected[drawn.token_id]).sum())
        assert [token for token, _ in found.top] == likeliest
        assert [p for _, p in found.top] == pytest.approx(expected[likeliest].tolist(), abs=1e-5)


def test_logprobs_of_equals_go_by_lower_id() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 200] = 1.0
    [drawn] = sample(logits, [make_row(temperature=0.0, logprobs=4)])
    assert drawn.logprobs is not None
    assert [token for token, _ in drawn.logprobs.top] == [200, 0, 1, 2]


def test_logprobs_0_gives_the_drawn_token_alone() -> None:
    [drawn] = sample(torch.zeros(1, 4), [make_row(logprobs=0)])
    assert drawn.logprobs is not None and drawn.logprobs.top == []
    assert drawn.logprobs.logprob == pytest.approx(-math.log(4)) and drawn.logprobs.rank == 1
