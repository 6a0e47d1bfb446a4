"""The sampler against a plain float64 reference, one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sampling_reference import reference_logits, reference_token, reference_weights
from sampling_rows import VOCAB, drawn_tokens, make_row, random_logits, random_row

from octavo.sampling.adjust import adjusted
from octavo.sampling.draw import surviving_weights
from octavo.sampling.rows import SamplingRow


@pytest.fixture(scope="module")
def case() -> tuple[torch.Tensor, list[SamplingRow], list[np.ndarray]]:
    rng = np.random.default_rng(20)
    rows = [random_row(rng, VOCAB) for _ in range(500)]
    logits = random_logits(rng, 500, VOCAB)
    return logits, rows, [reference_logits(x.numpy(), r) for x, r in zip(logits, rows, strict=True)]


def test_adjusted_logits(case: Any) -> None:
    logits, rows, expected = case
    np.testing.assert_allclose(adjusted(logits, rows).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_surviving_tokens(case: Any) -> None:
    logits, rows, expected = case
    warm = [i for i, row in enumerate(rows) if row.params.temperature > 0]
    assert len(warm) > 300
    found = surviving_weights(adjusted(logits, rows)[warm], [rows[i].params for i in warm])
    for weights, i in zip(found.double().numpy(), warm, strict=True):
        wanted = reference_weights(expected[i], rows[i])
        far = wanted > 1e-30  # float32 has nothing to say far below
        assert np.array_equal((weights > 0)[far | (wanted == 0)], far[far | (wanted == 0)]), i
        np.testing.assert_allclose(weights[far], wanted[far], rtol=1e-4)


def test_tokens_drawn(case: Any) -> None:
    logits, rows, expected = case
    wanted = [reference_token(x, row) for x, row in zip(expected, rows, strict=True)]
    assert drawn_tokens(logits, rows) == wanted


def rounded(logits: list[float], row: SamplingRow) -> list[float]:
    return [round(x, 4) for x in adjusted(torch.tensor([logits]), [row])[0].tolist()]


def test_repetition_counts_prompt_and_output_once_each() -> None:
    row = make_row(tokens=[0, 1, 2, 2], prompt_len=2, repetition_penalty=2.0)
    assert rounded([4.0, -4.0, 6.0, 8.0], row) == [2.0, -8.0, 3.0, 8.0]


def test_frequency_and_presence_count_output_alone() -> None:
    row = make_row(tokens=[0, 1, 2, 2], prompt_len=2, frequency_penalty=0.5, presence_penalty=1.0)
    assert rounded([4.0, -4.0, 6.0, 8.0], row) == [4.0, -4.0, 4.0, 8.0]


def test_penalties_before_anything_was_generated() -> None:
    row = make_row(tokens=[0, 1], prompt_len=2, frequency_penalty=0.5)
    assert rounded([4.0, 5.0], row) == [4.0, 5.0]


def test_tokens_from_the_drawn_position_on_are_not_seen() -> None:
    known = np.array([0, 1, 2, 3])
    params = make_row(presence_penalty=1.0, repetition_penalty=2.0).params
    row = SamplingRow(params, 0, 3, 1, known, ())
    assert rounded([4.0, 4.0, 4.0, 4.0], row) == [2.0, 1.0, 1.0, 4.0]


@pytest.mark.parametrize("generated,masked", [(0, True), (2, True), (3, False)])
def test_stop_ids_are_masked_until_min_tokens(generated: int, masked: bool) -> None:
    row = make_row(
        tokens=[0] * (2 + generated), stop_ids=(3, 5), min_tokens=3, temperature=0.0,
        logit_bias={3: 100.0},
    )  # fmt: skip
    assert drawn_tokens(torch.zeros(1, 8), [row]) == [0 if masked else 3]


def test_bias_acts_on_greedy_rows_of_its_own_only() -> None:
    rows = [make_row(temperature=0.0), make_row(temperature=0.0, logit_bias={6: 2.0, 4: 1.0})]
    assert drawn_tokens(torch.zeros(2, 8), rows) == [0, 6]
