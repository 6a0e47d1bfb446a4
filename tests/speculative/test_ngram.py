"""Guesses from earlier in the sequence: those of an oracle that looks everywhere."""

from __future__ import annotations

import time

import numpy as np
import pytest
from draft_rows import draft_row, places
from hypothesis import given
from hypothesis import strategies as st

from octavo.speculative.ngram import LATEST, LEAST, MOST, NgramProposer, agreements

TOKENS = st.lists(st.integers(0, 3), max_size=40)  # few kinds, so that many agree


@given(TOKENS)
def test_agreements_are_those_of_the_oracle(tokens: list[int]) -> None:
    behind, agreeing = agreements(np.array(tokens, np.int32))
    expected, most = places(tokens, tokens, MOST)
    if most < LEAST:
        assert agreeing < LEAST
    else:
        assert (behind.tolist(), agreeing) == (expected, most)


@given(TOKENS, st.integers(0, 12))
def test_a_guess_goes_on_as_the_latest_of_the_longest_agreements(
    tokens: list[int], most: int
) -> None:
    [guessed] = NgramProposer().propose([draft_row(tokens, most)])
    behind, agreeing = places(tokens, tokens, MOST)
    assert len(guessed) == (min(most, agreeing - 1) if agreeing >= LEAST else 0)
    going_on = list(tokens)
    for i, token in enumerate(guessed):
        assert token == going_on[behind[-1] + i]
        going_on.append(token)


def test_a_copied_passage_is_guessed_whole_and_a_loop_goes_on() -> None:
    passage = list(range(100, 130))
    [copied] = NgramProposer().propose([draft_row([*passage, 7, *passage[:12]], 8)])
    assert copied == passage[12:20]
    [loop] = NgramProposer().propose([draft_row([1, 2, 3] * 4, 8)])
    assert loop == [1, 2, 3, 1, 2, 3, 1, 2]


def test_nothing_is_guessed_where_nothing_is_asked_or_known() -> None:
    proposer = NgramProposer()
    rows = [draft_row([5, 6, 5, 6], 0), draft_row([], 4), draft_row([3], 4), draft_row([3, 4], 4)]
    assert [list(guessed) for guessed in proposer.propose(rows)] == [[], [], [], []]
    proposer.forget([0, 17])


def test_of_very_many_places_only_the_latest_are_looked_at() -> None:
    often = [1, 2] * (LATEST + 3)
    behind, _ = agreements(np.array([9, 1, 2, 8, *often[:-2], 9, 1, 2], np.int32))
    assert 3 not in behind, "the only place where three agree"
    assert len(behind) == LATEST


@pytest.mark.slow
@pytest.mark.parametrize(("length", "microseconds"), [(2_000, 60), (32_000, 150)])
def test_a_guess_costs_little(length: int, microseconds: int) -> None:
    tokens = np.random.default_rng(0).integers(0, 5_000, length).tolist()
    row = draft_row([*tokens[:-40], *tokens[100:140]], 8)
    proposer, best = NgramProposer(), 1.0
    for _ in range(200):
        started = time.perf_counter()
        [guessed] = proposer.propose([row])
        best = min(best, time.perf_counter() - started)
    assert guessed == tokens[140:148]
    assert best < microseconds * 1e-6
