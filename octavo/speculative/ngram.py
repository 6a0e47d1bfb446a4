"""Prompt lookup: what followed the same tokens earlier in the sequence follows again.

        the cat sat on the mat . so the cat sat            the longest end that was there before
        ~~~~~~~~~~~                 ~~~~~~~~~~~  on the    one guess fewer than tokens agree

After Prompt Lookup Decoding (Saxena, 2023), with no index: one pass over the tokens with numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from octavo.speculative.proposer import DraftRow

LEAST, MOST = 2, 16  # tokens that must agree, and that are compared
LATEST = 64  # earlier places that are looked at


class NgramProposer:
    """Guesses what followed the latest of the longest agreements.

    There is one guess fewer than tokens agree: a short agreement vouches for little, and within a
    passage that is copied they soon become many.
    """

    def propose(self, rows: Sequence[DraftRow]) -> list[Sequence[int]]:
        return [_follow(row.token_ids, row.most) if row.most > 0 else () for row in rows]

    def forget(self, sequence_ids: Collection[int]) -> None:
        pass


def agreements(tokens: np.ndarray) -> tuple[np.ndarray, int]:
    """Where earlier tokens agree with the last ones for longest, and how many agree, `MOST` of them
    being looked at: positions behind these places, rising; none, and 0, where fewer than `LEAST`
    agree anywhere."""
    if len(tokens) <= LEAST:
        return np.empty(0, np.int64), 0
    before_last, last = tokens[-LEAST:]
    same = (tokens[:-LEAST] == before_last) & (tokens[1 : 1 - LEAST] == last)
    return longest_of(tokens, np.flatnonzero(same)[-LATEST:] + LEAST, tokens[-MOST:])


def longest_of(
    tokens: np.ndarray, behind: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, int]:
    """Of the positions `behind`, those whose tokens before agree for longest with the last ones of
    `wanted`, and how many agree. `tokens` may be a ring, in which positions go on rising."""
    if len(behind) == 0:
        return behind, 0
    windows = tokens.take(behind[:, None] - np.arange(1, len(wanted) + 1), mode="wrap")
    agreeing = np.logical_and.accumulate(windows == wanted[::-1], axis=1).sum(axis=1)
    agreeing = np.minimum(agreeing, behind)
    longest = int(agreeing.max())
    return behind[agreeing == longest], longest


def _follow(tokens: np.ndarray, most: int) -> list[int]:
    behind, agreeing = agreements(tokens)
    if agreeing < LEAST:
        return []
    # What runs into the end of the tokens goes on with itself, as a copy by LZ77 does.
    guessed: list[int] = np.resize(tokens[behind[-1] :], min(agreeing - 1, most)).tolist()
    return guessed
