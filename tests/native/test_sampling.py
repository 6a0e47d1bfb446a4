"""The native sampler against float64 by sorting, against the torch one, and against itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sampling_reference import reference_logits, reference_token
from sampling_rows import VOCAB, make_row, random_logits, random_row

from octavo.native.interface import Native, Pool
from octavo.native.library import library, usable_variants
from octavo.native.sampling import sample
from octavo.sampling import sampler
from octavo.sampling.rows import Drawn, SamplingRow

LAST_NOISE = 1 - 2.0**-53


@pytest.fixture(scope="module", params=usable_variants())
def native(request: pytest.FixtureRequest) -> Native:
    return library(request.param)


@pytest.fixture(scope="module")
def pool(native: Native) -> Pool:
    return native.Pool(2)


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """What is put here is drawn with, row after row."""
    numbers: list[float] = []
    monkeypatch.setattr("octavo.native.sampling.noise", lambda rows: np.array(numbers))
    yield numbers


def tokens(pool: Pool, logits: np.ndarray, rows: list[SamplingRow]) -> list[int]:
    return [drawn.token_id for drawn in sample(pool, logits.astype(np.float32), rows)]


def coarse_logits(rng: np.random.Generator, rows: int, vocab: int) -> np.ndarray:
    """Few different numbers, some of them -inf."""
    logits = rng.integers(-12, 8, (rows, vocab)).astype(np.float32)
    logits[rng.random((rows, vocab)) < 0.1] = -np.inf
    logits[:, rng.integers(0, vocab)] = 7.5
    return logits


@pytest.mark.parametrize("vocab", [2, 15, 16, 17, 300, 1023, 1025, 2049, 20_000])
@pytest.mark.parametrize("ties", [False, True])
def test_tokens_are_those_of_the_reference(pool: Pool, vocab: int, ties: bool) -> None:
    rng = np.random.default_rng(vocab)
    count = 100 if vocab < 10_000 else 20
    rows = [random_row(rng, vocab) for _ in range(count)]
    logits = coarse_logits(rng, count, vocab) if ties else random_logits(rng, count, vocab).numpy()
    alive = np.isfinite([reference_logits(x, r).max() for x, r in zip(logits, rows, strict=True)])
    wanted = [
        reference_token(reference_logits(x, row), row) if lives else -1
        for x, row, lives in zip(logits, rows, alive, strict=True)
    ]
    assert tokens(pool, logits, rows) == wanted


@pytest.mark.parametrize("vocab,count", [(VOCAB, 3000), (50_257, 60)])
def test_the_same_is_drawn_as_by_torch(pool: Pool, vocab: int, count: int) -> None:
    rng = np.random.default_rng(vocab)
    rows = [random_row(rng, vocab) for _ in range(count)]
    logits = random_logits(rng, count, vocab)
    for mine, theirs in zip(
        sample(pool, logits.numpy(), rows), sampler.sample(logits, rows), strict=True
    ):
        assert mine.token_id == theirs.token_id and mine.error == theirs.error
        assert (mine.logprobs is None) == (theirs.logprobs is None)
        if mine.logprobs and theirs.logprobs:
            assert mine.logprobs.rank == theirs.logprobs.rank
            assert [t for t, _ in mine.logprobs.top] == [t for t, _ in theirs.logprobs.top]


@pytest.mark.parametrize("temperature", [2e-5, 1e-3, 2.0])
@pytest.mark.parametrize("controls", [{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.3}])
def test_extreme_temperatures(pool: Pool, temperature: float, controls: dict[str, Any]) -> None:
    logits = random_logits(np.random.default_rng(1), 40, 5000).numpy()
    rows = [make_row(seed=i, temperature=temperature, **controls) for i in range(40)]
    wanted = [reference_token(x.astype(np.float64), r) for x, r in zip(logits, rows, strict=True)]
    assert tokens(pool, logits, rows) == wanted


@pytest.mark.parametrize("largest", [1e38, 3.4e38, -3.4e38])
def test_extreme_logits_do_not_overflow(pool: Pool, largest: float) -> None:
    logits = np.full((1, VOCAB), -3.4e38 if largest > 0 else -np.inf)
    logits[0, 7] = largest
    assert tokens(pool, logits, [make_row(temperature=1e-4, top_p=0.9)]) == [7]


@pytest.mark.parametrize("top_p", [1e-9, 0.1, 0.5, 0.9, 0.999, 1 - 1e-12])
@pytest.mark.parametrize("sigma", [0.0, 0.1, 1.0, 5.0])
def test_nucleus_of_flat_and_peaked_rows(pool: Pool, top_p: float, sigma: float) -> None:
    logits = np.random.default_rng(2).normal(0, sigma, (20, 30_000)).astype(np.float32)
    rows = [make_row(seed=i, top_p=top_p) for i in range(20)]
    wanted = [reference_token(x.astype(np.float64), r) for x, r in zip(logits, rows, strict=True)]
    assert tokens(pool, logits, rows) == wanted


@pytest.mark.parametrize("top_k", [1, 2, 50, 900, 9_000])
def test_likeliest_tokens_side_by_side(pool: Pool, top_k: int) -> None:
    """Where maxima of groups tell least."""
    logits = np.sort(random_logits(np.random.default_rng(3), 20, 10_000).numpy())
    rows = [make_row(seed=i, top_k=top_k, logprobs=9) for i in range(20)]
    for x, row, drawn in zip(logits, rows, sample(pool, logits, rows), strict=True):
        assert drawn.token_id == reference_token(x.astype(np.float64), row)
        assert drawn.logprobs and len(drawn.logprobs.top) == 9
        assert [t for t, _ in drawn.logprobs.top] == np.argsort(-x, kind="stable")[:9].tolist()


@pytest.mark.parametrize("controls", [{"top_p": 0.9}, {"top_k": 4}, {"top_k": 99}, {"min_p": 0.5}])
def test_extreme_noise_draws_the_first_and_last_survivor(
    pool: Pool, noise: list[float], controls: dict[str, Any]
) -> None:
    logits = np.full((2, VOCAB), -9.0)
    logits[:, 100:200:25] = [2.0, 2.1, 1.9, 2.0]
    logits[:, 190:285] = 1.8 if controls == {"top_k": 99} else -9.0
    noise[:] = [0.0, LAST_NOISE]
    last = 284 if controls == {"top_k": 99} else 175
    assert tokens(pool, logits, [make_row(**controls)] * 2) == [100, last]


def test_extreme_noise_over_many_tiles(pool: Pool, noise: list[float]) -> None:
    logits = np.full((2, 9000), -np.inf)
    logits[:, 2500:7100:7] = np.random.default_rng(4).normal(0, 1, 658)
    noise[:] = [0.0, LAST_NOISE]
    assert tokens(pool, logits, [make_row()] * 2) == [2500, 7099]


def test_ties_at_the_edge_of_top_k_and_top_p_all_survive(pool: Pool) -> None:
    logits = np.zeros((4000, VOCAB))
    logits[:, 150:250] = 15.0
    rows = [make_row(seed=i, **({"top_k": 3} if i % 2 else {"top_p": 0.1})) for i in range(4000)]
    drawn = tokens(pool, logits, rows)
    assert set(drawn[::2]) == set(drawn[1::2]) == set(range(150, 250))


def test_greedy_takes_the_first_of_equals(pool: Pool) -> None:
    logits = np.full((3, 5000), -1.0)
    logits[0, [4000, 70, 71]] = 3.0
    logits[1, [90, 3000]] = [0.0, -0.0]
    logits[2, [90, 3000]] = [-0.0, 0.0]
    rows = [make_row(temperature=0.0), make_row(temperature=9e-6), make_row(temperature=0.0)]
    assert tokens(pool, logits, rows) == [70, 90, 90]


@pytest.mark.parametrize("vocab,count", [(VOCAB, 60), (50_257, 24)])
def test_row_alone_equals_row_in_any_batch(native: Native, vocab: int, count: int) -> None:
    rng = np.random.default_rng(6)
    logits = random_logits(rng, count, vocab).numpy()
    batch = [random_row(rng, vocab) for _ in range(count)]
    pools = [native.Pool(1), native.Pool(2)]
    alone = [sample(pools[0], logits[i : i + 1], [row])[0] for i, row in enumerate(batch)]
    assert all(drawn.error is None for drawn in alone)
    for turn in range(6):
        order = rng.permutation(count)[: rng.integers(2, count + 1)]
        drawn = sample(pools[turn % 2], logits[order], [batch[i] for i in order])
        assert drawn == [alone[i] for i in order]


def test_logits_are_unchanged_and_may_be_read_only(pool: Pool) -> None:
    rng = np.random.default_rng(7)
    logits = random_logits(rng, 20, VOCAB).numpy()
    before = logits.copy()
    logits.flags.writeable = False
    sample(pool, logits, [random_row(rng, VOCAB) for _ in range(20)])
    assert np.array_equal(logits, before)


def test_nothing_to_sample(pool: Pool) -> None:
    assert sample(pool, np.empty((0, VOCAB), dtype=np.float32), []) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_unusable_logits_fail_their_row_alone(pool: Pool, bad: float, temperature: float) -> None:
    rng = np.random.default_rng(8)
    logits = random_logits(rng, 9, VOCAB).numpy()
    rows = [random_row(rng, VOCAB) for _ in range(9)]
    rows[4] = make_row(temperature=temperature, top_p=0.9, top_k=100, logprobs=3)
    sound = sample(pool, logits, rows)
    logits[4] = bad
    broken = sample(pool, logits, rows)
    said = "every logit is -inf" if bad == -math.inf else f"contain {bad}"
    assert broken[4].token_id == -1 and said in (broken[4].error or "")
    assert broken[4].logprobs is None
    assert broken[:4] + broken[5:] == sound[:4] + sound[5:]


@pytest.mark.parametrize("place", [0, 11, VOCAB - 1])
def test_one_nan_is_found_even_below_a_mask(pool: Pool, place: int) -> None:
    logits = np.zeros((1, VOCAB))
    logits[0, place] = math.nan
    [drawn] = sample(
        pool, logits.astype(np.float32), [make_row(stop_ids=(place,), min_tokens=5, logprobs=2)]
    )
    assert drawn == Drawn(-1, error="the model's logits contain nan")


def test_masking_everything_is_an_error(pool: Pool) -> None:
    row = make_row(stop_ids=tuple(range(8)), min_tokens=1)
    assert sample(pool, np.zeros((1, 8), dtype=np.float32), [row])[0].error


def test_an_edit_outside_the_vocabulary_is_refused(pool: Pool) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary"):
        tokens(pool, np.zeros((1, 8)), [make_row(logit_bias={8: 1.0})])


def test_logprobs_are_the_models_own(pool: Pool) -> None:
    rng = np.random.default_rng(9)
    logits = random_logits(rng, 40, 5000)
    rows = [random_row(rng, 5000) for _ in range(40)]
    found = sample(pool, logits.numpy(), rows)
    for logit, row, drawn in zip(logits.double(), rows, found, strict=True):
        if row.params.logprobs is None:
            assert drawn.logprobs is None
            continue
        expected = logit.log_softmax(0).numpy()
        likeliest = np.argsort(-expected, kind="stable")[: row.params.logprobs].tolist()
        assert drawn.logprobs is not None and drawn.logprobs.token_id == drawn.token_id
        assert drawn.logprobs.logprob == pytest.approx(expected[drawn.token_id], abs=1e-5)
        assert drawn.logprobs.rank == 1 + (expected > expected[drawn.token_id]).sum()
        assert [token for token, _ in drawn.logprobs.top] == likeliest
        assert [p for _, p in drawn.logprobs.top] == pytest.approx(expected[likeliest], abs=1e-5)


def test_logprobs_beyond_the_vocabulary(pool: Pool) -> None:
    logits = np.array([[0.0, 1.0, 0.0]], dtype=np.float32)
    [drawn] = sample(pool, logits, [make_row(temperature=0.0, logprobs=5)])
    assert drawn.logprobs and [token for token, _ in drawn.logprobs.top] == [1, 0, 2]
