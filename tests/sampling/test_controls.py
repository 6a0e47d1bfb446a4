"""Every control, alone and in mixtures, in both samplers, against float64 by sorting.

Processed logprobs of the whole vocabulary are exactly what a row is drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from sampling_reference import reference_logits, reference_probabilities, reference_token
from sampling_rows import PROCESSORS, any_row, make_row, random_row

from octavo.native import sampling as native
from octavo.native.library import library, usable_variants
from octavo.sampling import sampler
from octavo.sampling.rows import Drawn, SamplingRow

Sample = Callable[..., list[Drawn]]
EVERYTHING = {"logprobs": -1, "logprobs_mode": "processed"}


def by_torch(logits: np.ndarray, rows: Sequence[SamplingRow], **options: Any) -> list[Drawn]:
    return sampler.sample(torch.from_numpy(logits), rows, **options)


@pytest.fixture(scope="module", params=["torch", *usable_variants()])
def sample(request: pytest.FixtureRequest) -> Sample:
    """Takes logits as a numpy array."""
    if request.param == "torch":
        return by_torch
    return partial(native.sample, library(request.param).Pool(2))


def mixed_logits(rng: np.random.Generator, rows: int, vocab: int) -> np.ndarray:
    """A third of them with many ties, a third with -inf, a third with a few high peaks."""
    logits = rng.normal(0, 3, (rows, vocab)).astype(np.float32)
    logits[::3] = np.round(logits[::3] * 4) / 4
    logits[1::3][rng.random(logits[1::3].shape) < 0.2] = -np.inf
    logits[2::3, rng.integers(0, vocab, 4)] += 15
    return logits


def distribution(told: Any, vocab: int) -> np.ndarray:
    p = np.zeros(vocab)
    ids, logprobs = zip(*told.top, strict=True)
    assert len(set(ids)) == len(ids) and min(logprobs) > -math.inf
    assert list(logprobs) == sorted(logprobs, reverse=True)
    p[list(ids)] = np.exp(logprobs)
    return p


def check(logits: np.ndarray, row: SamplingRow, drawn: Drawn) -> None:
    x = reference_logits(logits, row)
    if x.max() == -np.inf:
        assert drawn.token_id == -1 and "every logit is -inf" in (drawn.error or "")
        return
    wanted, mass = reference_probabilities(x, row)
    assert drawn.token_id == reference_token(x, row)
    told = drawn.logprobs
    assert told is not None and told.log_mass is not None
    found = distribution(told, len(x))
    # Below this float32 weights are 0 or have few bits left; such tokens are never drawn.
    seen = wanted > 1e-35
    assert np.array_equal(found[seen | (wanted == 0)] > 0, seen[seen | (wanted == 0)])
    np.testing.assert_allclose(found[seen], wanted[seen], rtol=1e-6)
    assert told.logprob == dict(told.top)[drawn.token_id]
    assert told.rank == 1 + (x > x[drawn.token_id]).sum()
    assert math.exp(told.log_mass) == pytest.approx(mass, rel=1e-6)


@pytest.mark.parametrize("vocab", [7, 300, 5003])
def test_mixtures(sample: Sample, vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    count = 500 if vocab == 300 else 150
    rows = [random_row(rng, vocab, **EVERYTHING) for _ in range(count)]
    logits = mixed_logits(rng, count, vocab)
    for x, row, drawn in zip(logits, rows, sample(logits, rows), strict=True):
        check(x, row, drawn)


ALONE: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.3},
    {"min_p": 0.1},
    {"top_k": 5},
    {"top_k": 250},
    {"top_p": 0.7},
    {"logit_bias": {3: 5.0, 8: -100.0}},
    {"allowed_token_ids": [5, 4, 5, 200]},
    {"bad_word_ids": [[6], [2, 7], [9, 1]]},
    {"min_tokens": 9},
    {"repetition_penalty": 1.3},
    {"frequency_penalty": 0.4},
    {"presence_penalty": -1.1},
]


@pytest.mark.parametrize("control", ALONE, ids=lambda control: next(iter(control)))
def test_each_control_alone(sample: Sample, control: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    logits = mixed_logits(rng, 30, 300)
    tokens, plain = [7, 2, 8, 2], {"tokens": [7, 2, 8, 2], "stop_ids": (11, 12), **EVERYTHING}
    rows = [make_row(seed=i, **(plain | control)) for i in range(30)]
    assert tokens[2:] == rows[0].output.tolist()
    changed = 0
    for x, row, drawn in zip(logits, rows, sample(logits, rows), strict=True):
        check(x, row, drawn)
        assert drawn.logprobs
        untouched = reference_probabilities(x.astype(np.float64), make_row())[0]
        changed += not np.allclose(distribution(drawn.logprobs, 300), untouched, rtol=1e-3)
    assert (changed == 0) == ("temperature" in control and control["temperature"] == 0)


def p_value(chi2: float, freedom: int) -> float:
    """Wilson and Hilferty's normal approximation (1931)."""
    spread = 2 / (9 * freedom)
    z = ((chi2 / freedom) ** (1 / 3) - 1 + spread) / math.sqrt(spread)
    return math.erfc(z / math.sqrt(2)) / 2


CHANCE: list[dict[str, Any]] = [
    *({}, {"temperature": 0.5}, {"top_k": 12}, {"top_p": 0.8}, {"min_p": 0.1}),
    {"allowed_token_ids": list(range(10, 40))},
    {"logit_bias": {5: 3.0}, "repetition_penalty": 1.4, "presence_penalty": 0.5},
    {"temperature": 1.3, "top_k": 60, "top_p": 0.9, "min_p": 0.02, "frequency_penalty": 0.3},
]


@pytest.mark.parametrize("controls", CHANCE, ids=lambda controls: "+".join(controls) or "none")
def test_draws_follow_the_distribution(controls: dict[str, Any]) -> None:
    check_draws(partial(native.sample, library().Pool(2)), controls)


def test_draws_by_torch_follow_the_distribution() -> None:
    check_draws(by_torch, CHANCE[-1])


def check_draws(sample: Sample, controls: dict[str, Any]) -> None:
    """50,000 positions behind the same tokens: all but the noise is the same."""
    count, vocab = 50_000, 100
    logits = np.random.default_rng(2).normal(0, 1.5, vocab).astype(np.float32)
    row = make_row(tokens=[3, 1, 5, 5, 20], seed=11, **controls)
    rows = [msgspec.structs.replace(row, position=5 + i) for i in range(count)]
    drawn = [d.token_id for d in sample(np.tile(logits, (count, 1)), rows)]
    expected = count * reference_probabilities(reference_logits(logits, row), row)[0]
    seen = np.bincount(drawn, minlength=vocab)
    assert seen[expected == 0].sum() == 0
    often = expected >= 5
    rest = expected[~often].sum()
    cells = [*((seen[often] - expected[often]) ** 2 / expected[often])]
    cells += [(seen[~often].sum() - rest) ** 2 / rest] if rest else []
    assert p_value(sum(cells), len(cells) - 1) > 1e-3


def test_a_row_alone_is_the_row_in_any_batch(sample: Sample) -> None:
    rng = np.random.default_rng(3)
    rows = [any_row(rng, 300) for _ in range(120)]
    logits = mixed_logits(rng, 120, 300)
    alone = [
        sample(logits[i : i + 1], [row], processors=PROCESSORS)[0] for i, row in enumerate(rows)
    ]
    assert sum(drawn.error is None for drawn in alone) > 110
    for _ in range(5):
        order = rng.permutation(120)[: rng.integers(2, 121)]
        drawn = sample(logits[order], [rows[i] for i in order], processors=PROCESSORS)
        assert drawn == [alone[i] for i in order]


def test_both_samplers_tell_the_same(sample: Sample) -> None:
    rng = np.random.default_rng(4)
    rows = [any_row(rng, 300) for _ in range(400)]
    logits = mixed_logits(rng, 400, 300)
    pairs = zip(
        sample(logits, rows, processors=PROCESSORS),
        by_torch(logits, rows, processors=PROCESSORS),
        strict=True,
    )
    for mine, theirs in pairs:
        assert (mine.token_id, mine.error) == (theirs.token_id, theirs.error)
        assert (mine.logprobs is None) == (theirs.logprobs is None)
        if mine.logprobs and theirs.logprobs:
            for field in ("logprob", "rank", "log_mass"):
                assert getattr(mine.logprobs, field) == pytest.approx(
                    getattr(theirs.logprobs, field), abs=2e-5
                )
            for field in ("top", "named"):
                ours, others = getattr(mine.logprobs, field), getattr(theirs.logprobs, field)
                assert [token for token, _ in ours] == [token for token, _ in others]
                np.testing.assert_allclose(
                    [p for _, p in ours], [p for _, p in others], atol=2e-5, rtol=1e-6
                )
