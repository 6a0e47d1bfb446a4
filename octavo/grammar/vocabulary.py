"""What a grammar needs to know of a tokenizer: the bytes of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Never changes."""

    tokens: Sequence[bytes]  # by id; empty where there is none
    special_ids: frozenset[int]  # tokens that no text spells
    eos_ids: tuple[int, ...]  # any of them ends an answer

    @property
    def words(self) -> int:
        """int32 of a bit mask over all tokens."""
        return (len(self.tokens) + 31) // 32

    @cached_property
    def named(self) -> dict[str, int]:
        """Special tokens by their names."""
        return {self.tokens[i].decode(errors="replace"): i for i in self.special_ids}

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """The first token of each spelling that text may have."""
        found: dict[bytes, int] = {}
        for token_id, spelled in enumerate(self.tokens):
            if spelled and token_id not in self.special_ids:
                found.setdefault(spelled, token_id)
        return found

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest such token."""
        return max(map(len, self.ids), default=0)

    def shortest_spelling(self, text: bytes) -> list[int] | None:
        """The fewest tokens that spell `text`; None where some byte has none."""
        best: list[tuple[int, int]] = [(0, 0)]  # by end: tokens, and where the last one begins
        impossible = len(text) + 1
        for end in range(1, len(text) + 1):
            starts = range(max(0, end - self.longest), end)
            fits = ((best[i][0] + 1, i) for i in starts if text[i:end] in self.ids)
            best.append(min(fits, default=(impossible, 0)))
        if best[-1][0] >= impossible:
            return None
        spelled, end = [], len(text)
        while end:
            start = best[end][1]
            spelled.append(self.ids[text[start:end]])
            end = start
        return spelled[::-1]
