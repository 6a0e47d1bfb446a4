"""Guesses from what followed the same tokens before, in the sequence itself or in past answers.

        ... the cat sat | on    x 3          p(on)        = 3/4
                        | down  x 1          p(on, the)   = 3/4 * 2/3       and so on down the tree

After SuffixDecoding (Oliaro et al., 2024, arXiv 2411.04975): all places where the longest end of
the sequence occurs vote on each next token, and guesses go on while they are likely enough. Places
are found by hashes of n-grams, not in a tree, so that memory is bounded and old answers can go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from octavo.speculative.ngram import MOST, agreements, longest_of
from octavo.speculative.proposer import DraftRow

KEPT = 2**18  # tokens of past answers
VOTES = 32  # places that vote, at most: the latest
LIKELY = 0.5  # with which all guesses up to one are right, at least

_ORDERS = (2, 4, 8)  # lengths of n-grams that are found by their hash, each twice the one before
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_END = -1  # between answers


class SuffixProposer:
    """Guesses by the votes of the sequence's own tokens, or of past answers where these promise
    more.

    An answer is past once its sequence is forgotten. There is one guess fewer than tokens agree.
    """

    def __init__(self, kept: int = KEPT) -> None:
        """`kept`: tokens of past answers, a power of two; at most 52 bytes each."""
        self._past = PastAnswers(kept)
        self._answers: dict[int, list[int]] = {}  # of sequences that run

    def propose(self, rows: Sequence[DraftRow]) -> list[Sequence[int]]:
        for row in rows:
            answer = self._answers.setdefault(row.sequence_id, [])
            answer += row.token_ids[row.prompt_len + len(answer) :].tolist()
        return [self._guess(row) if row.most > 0 else () for row in rows]

    def forget(self, sequence_ids: Collection[int]) -> None:
        for sequence_id in sequence_ids:
            self._past.add(self._answers.pop(sequence_id, []))

    def _guess(self, row: DraftRow) -> list[int]:
        guessed, expected = _own(row.token_ids, row.most)
        if expected < row.most:  # more may be promised
            past, promised = vote(*self._past.following(row.token_ids, row.most))
            guessed = past if promised > expected else guessed
        return guessed


class PastAnswers:
    """The latest tokens of answers that have ended: a ring, in which positions go on rising.

    For n-grams of each order there is a table from hashes to the latest place with it, and from
    each place a link to the one before: the chains of LZ77 coders.
    """

    def __init__(self, kept: int) -> None:
        self._tokens = np.full(kept, _END, np.int32)
        self._shift = np.uint64(65 - kept.bit_length())
        self._latest, self._before = np.zeros((2, len(_ORDERS), kept), np.int64)
        self._end = MOST  # place 0 is none

    def add(self, answer: Sequence[int]) -> None:
        """Its end, where it is longer than what is kept."""
        kept = len(self._tokens)
        tokens = np.array([*answer[-(kept // 2) :], _END], np.int32)
        for i, hashes in enumerate(self._hashes(tokens[:-1])):
            places = np.arange(len(hashes)) + self._end + _ORDERS[i]
            self._before[i, places % kept] = _linked(hashes, places, self._latest[i])
        self._tokens[np.arange(self._end, self._end + len(tokens)) % kept] = tokens
        self._end += len(tokens)

    def following(self, tokens: np.ndarray, most: int) -> tuple[np.ndarray, int]:
        """What followed where the end of `tokens` occurs, int32 [places, most], the latest place
        first, and how many tokens agree there. Below 0 where an answer ended."""
        wanted, behind, agreeing = tokens[-MOST:], np.empty(0, np.int64), 0
        hashes = list(self._hashes(wanted[-_ORDERS[-1] :]))
        for i in reversed(range(len(_ORDERS))):
            if len(hashes[i]) > 0:
                places = np.fromiter(self._places(i, int(hashes[i][-1])), np.int64)
                behind, agreeing = longest_of(self._tokens, places, wanted)
            if agreeing >= _ORDERS[i]:
                break
        return self._tokens.take(behind[:, None] + np.arange(most), mode="wrap"), agreeing

    def _places(self, order: int, hashed: int) -> Iterator[int]:
        """The latest ones first, of which all that may be read is still there."""
        kept, before = len(self._tokens), self._before[order]
        oldest = max(0, self._end - kept + MOST)
        place, votes = self._latest[order].item(hashed), VOTES
        while place > oldest and votes > 0:
            yield place
            place, votes = before.item(place % kept), votes - 1

    def _hashes(self, tokens: np.ndarray) -> Iterator[np.ndarray]:
        """By order, of all n-grams in their turn."""
        mixed = tokens.astype(np.uint64) + np.uint64(1)
        for order, mix in zip(_ORDERS, _MIX, strict=True):
            mixed = mixed[: -(order // 2)] * np.uint64(mix) + mixed[order // 2 :]
            yield (mixed * _SPREAD) >> self._shift


def vote(following: np.ndarray, agreeing: int) -> tuple[list[int], float]:
    """The likeliest tokens one after another, fewer than agree, as long as all of them together
    are `LIKELY`; and how many of them will be right on average, by the votes."""
    guessed: list[int] = []
    likely, expected = 1.0, 0.0
    voters = following.tolist()
    for depth in range(min(agreeing - 1, following.shape[1])):
        ballot = [line[depth] for line in voters]
        token = max(ballot, key=ballot.count)
        likely *= ballot.count(token) / len(ballot)
        if token == _END or likely < LIKELY:
            break
        guessed.append(token)
        expected += likely
        voters = [line for line in voters if line[depth] == token]
    return guessed, expected


def _own(tokens: np.ndarray, most: int) -> tuple[list[int], float]:
    """By the sequence itself; what runs into its end goes on with itself."""
    behind, agreeing = agreements(tokens)
    behind = behind[: -VOTES - 1 : -1, None]
    return vote(tokens[behind + np.arange(most) % (len(tokens) - behind)], agreeing)


def _linked(hashes: np.ndarray, places: np.ndarray, latest: np.ndarray) -> np.ndarray:
    """For each place the one before it with the same hash; `latest` is brought up to date."""
    before: np.ndarray = latest[hashes]
    order = np.argsort(hashes, kind="stable")
    again = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    before[order[again + 1]] = places[order[again]]
    latest[hashes] = places  # where a hash comes several times, the last one stays
    return before
