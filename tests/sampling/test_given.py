"""Tokens that are not drawn but given, as those of a prompt; and logprobs of tokens by name."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from sampling_rows import make_row, random_logits, random_row

from octavo.native import sampling as native
from octavo.native.library import library
from octavo.sampling import sampler


@pytest.fixture(params=["torch", "native"])
def sample(request: pytest.FixtureRequest) -> Any:
    if request.param == "torch":
        return lambda x, rows: sampler.sample(torch.from_numpy(x), rows)
    pool = library().Pool(2)
    return lambda x, rows: native.sample(pool, x, rows)


def test_of_a_given_token_the_models_own_logprob_is_told(sample: Any) -> None:
    """Whatever controls its request has."""
    rng = np.random.default_rng(1)
    logits = random_logits(rng, 60, 300).numpy()
    tokens = rng.integers(0, 300, 60).tolist()
    rows = [
        msgspec.structs.replace(
            random_row(rng, 300, logprobs_mode="processed", logprob_token_ids=[3]),
            given=token,
            logprobs=4,
        )
        for token in tokens
    ]
    for x, token, drawn in zip(
        logits.astype(np.float64), tokens, sample(logits, rows), strict=True
    ):
        expected = x - np.log(np.exp(x).sum())
        told = drawn.logprobs
        assert drawn.token_id == told.token_id == token
        assert told.logprob == pytest.approx(expected[token], abs=1e-5)
        assert told.rank == 1 + (x > x[token]).sum()
        assert [t for t, _ in told.top] == np.argsort(-x, kind="stable")[:4].tolist()
        assert told.named == [] and told.log_mass is None


def test_a_given_token_without_logprobs(sample: Any) -> None:
    [drawn] = sample(np.zeros((1, 9), np.float32), [msgspec.structs.replace(make_row(), given=4)])
    assert drawn.token_id == 4 and drawn.logprobs is None


def test_a_given_token_of_unusable_logits_fails(sample: Any) -> None:
    logits = np.zeros((2, 9), np.float32)
    logits[0, 8] = np.nan
    given = msgspec.structs.replace(make_row(logprobs=1), given=4)
    broken, sound = sample(logits, [given, given])
    assert broken.error == "the model's logits contain nan" and broken.token_id == -1
    assert sound.error is None


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_named_tokens_are_told_in_their_order(sample: Any, mode: Any) -> None:
    logits = random_logits(np.random.default_rng(2), 1, 50).numpy()
    row = make_row(
        logprob_token_ids=[7, 7, 0], logprobs_mode=mode, allowed_token_ids=[0, 1], top_k=2
    )
    [drawn] = sample(logits, [row])
    [first, second, third] = drawn.logprobs.named
    assert first == second and first[0] == 7 and third[0] == 0
    x = torch.from_numpy(logits[0]).double()
    if mode == "raw":
        assert drawn.logprobs.log_mass is None
        assert first[1] == pytest.approx(x.log_softmax(0)[7].item(), abs=1e-5)
    else:
        assert first[1] == -np.inf and drawn.logprobs.log_mass == pytest.approx(0, abs=1e-12)
        assert third[1] == pytest.approx(x[:2].log_softmax(0)[0].item(), abs=1e-5)


def test_the_whole_vocabulary(sample: Any) -> None:
    logits = np.array([[0.0, -np.inf, 2.0, 2.0]], np.float32)
    raw, processed = (
        sample(logits, [make_row(logprobs=-1, logprobs_mode=mode, top_k=2)])[0].logprobs.top
        for mode in ("raw", "processed")
    )
    assert [token for token, _ in raw] == [2, 3, 0, 1] and raw[-1][1] == -np.inf
    assert processed == [(2, pytest.approx(np.log(0.5))), (3, pytest.approx(np.log(0.5)))]
