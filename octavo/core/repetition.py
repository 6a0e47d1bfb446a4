"""Whether an output goes round in circles, looked at token by token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.base.repetition import RepetitionDetection


class Repetitions:
    """Follows one output.

    For each size p of a pattern it counts how many tokens in a row were what stood p tokens
    before them: a pattern of p tokens stands `min_count` times in a row when p * (min_count - 1)
    were. A token costs one comparison for each p, however long the output is.
    """

    def __init__(self, wanted: RepetitionDetection, output: Sequence[int] = ()) -> None:
        """`output`: what was generated before."""
        self._least = wanted.min_pattern_size
        sizes = np.arange(self._least, wanted.max_pattern_size + 1)
        self._goals = sizes * (wanted.min_count - 1)
        self._runs = np.zeros_like(sizes)
        self._most = wanted.max_pattern_size
        # The last tokens, the newest first from `_begin` on; the front is free for more.
        self._recent = np.full(4 * self._most, -1, dtype=np.int64)
        self._begin = 3 * self._most
        for token in output:
            self.append(token)

    def append(self, token: int) -> bool:
        """Take the next token; whether the output now ends in a repeated pattern."""
        before = self._recent[self._begin + self._least - 1 : self._begin + self._most]
        self._runs += 1
        self._runs *= before == token
        if self._begin == 0:
            self._recent[3 * self._most :] = self._recent[: self._most].copy()
            self._begin = 3 * self._most
        self._begin -= 1
        self._recent[self._begin] = token
        return bool((self._runs >= self._goals).any())
