"""Votes of the sequence itself and of past answers: those of oracles that look everywhere."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from draft_rows import draft_row, places
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.speculative.ngram import LEAST, MOST
from octavo.speculative.suffix import LIKELY, VOTES, PastAnswers, SuffixProposer, vote

TOKENS = st.lists(st.integers(0, 3), max_size=30)
KINDS = st.integers(-1, 2)
END = -1


def told(proposer: SuffixProposer, answer: list[int], sequence_id: int = 0) -> None:
    """An answer, as it is seen row by row, and its end."""
    for length in (len(answer) // 2, len(answer)):
        proposer.propose([draft_row([8, 9, *answer[:length]], 0, prompt_len=2)])
    proposer.forget([sequence_id])


@given(st.lists(TOKENS, max_size=6), TOKENS)
def test_places_in_past_answers_are_those_of_the_oracle(
    answers: list[list[int]], tokens: list[int]
) -> None:
    past = PastAnswers(kept=1024)
    for answer in answers:
        past.add(answer)
    following, agreeing = past.following(np.array(tokens, np.int32), 5)
    ring = [token for answer in answers for token in (*answer, END)]
    behind, most = places(ring, tokens, MOST)
    if most < LEAST:
        assert agreeing < LEAST
        return
    assert agreeing == most
    latest = behind[: -VOTES - 1 : -1]
    after = [_until_end([*ring, *[END] * 5][place : place + 5]) for place in latest]
    assert [_until_end(line) for line in following.tolist()] == after


def _until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(END)] if END in tokens else tokens


@given(
    st.lists(st.lists(st.integers(-1, 2), min_size=6, max_size=6), min_size=1), st.integers(0, 8)
)
def test_votes_are_a_walk_down_the_tree_of_what_followed(
    following: list[list[int]], agreeing: int
) -> None:
    guessed, expected = vote(np.array(following), agreeing)
    assert len(guessed) <= max(0, agreeing - 1)
    shares = []
    for depth, token in enumerate(guessed):
        alike = [line for line in following if line[:depth] == guessed[:depth]]
        counts = Counter(line[depth] for line in alike)
        assert counts[token] == max(counts.values())
        shares.append(sum(line[: depth + 1] == guessed[: depth + 1] for line in following))
    assert all(share >= LIKELY * len(following) for share in shares)
    assert np.isclose(expected, sum(shares) / len(following))


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_old_answers_go_and_those_that_are_kept_are_still_found(seed: int) -> None:
    draw, past, kept = random.Random(seed), PastAnswers(kept=256), []
    for _ in range(60):
        kept.append([draw.randrange(1000) for _ in range(draw.randrange(2, 40))])
        past.add(kept[-1])
    space = 256 - 2 * MOST
    for answer in reversed(kept):
        space -= len(answer) + 1
        if space < 0:
            break
        following, agreeing = past.following(np.array(answer[:2], np.int32), 4)
        assert agreeing == 2
        assert _until_end(following[0].tolist()) == answer[2:6]
    _, agreeing = past.following(np.array(kept[0], np.int32), 4)
    assert agreeing < min(len(kept[0]), MOST), "what is gone votes no more"


def test_memory_is_of_one_size_and_nothing_of_a_forgotten_sequence_stays() -> None:
    proposer = SuffixProposer(kept=64)
    sizes = {part.nbytes for part in vars(proposer._past).values() if hasattr(part, "nbytes")}
    for n in range(200):
        told(proposer, [n, n + 1, n + 2])
    told(proposer, list(range(500)))  # longer than all that is kept
    assert proposer._answers == {}
    assert sizes == {p.nbytes for p in vars(proposer._past).values() if hasattr(p, "nbytes")}
    [guessed] = proposer.propose([draft_row(list(range(470, 480)), 8, sequence_id=3)])
    assert guessed == list(range(480, 488))


def test_past_answers_are_followed_and_the_own_tokens_where_these_promise_as_much() -> None:
    proposer, answer = SuffixProposer(), list(range(100, 120))
    told(proposer, answer)
    [guessed] = proposer.propose([draft_row([1, 2, *answer[:6]], 8, sequence_id=1)])
    assert guessed == answer[6:11], "one fewer than agree"
    own = [*answer[:6], 55, 56, 57, 58, 59, 60, *answer[:6]]
    [guessed] = proposer.propose([draft_row(own, 4, sequence_id=2)])
    assert guessed == [55, 56, 57, 58]


def test_guesses_end_where_the_votes_are_divided_and_where_answers_ended() -> None:
    proposer, common = SuffixProposer(), [1, 2, 3, 4, 5, 6]
    for n in range(3):
        told(proposer, [*common, 7, 10 + n, 8])
    [guessed] = proposer.propose([draft_row(common, 8, sequence_id=1)])
    assert guessed == [7]
    [guessed] = proposer.propose([draft_row([*common, 7, 12], 8, sequence_id=2)])
    assert guessed == [8]


def test_prompts_are_no_answers() -> None:
    proposer = SuffixProposer()
    proposer.propose([draft_row([1, 2, 3, 4, 5, 6], 0, prompt_len=6)])
    proposer.forget([0, 99])
    [guessed] = proposer.propose([draft_row([1, 2, 3, 4], 8, sequence_id=1)])
    assert guessed == []
