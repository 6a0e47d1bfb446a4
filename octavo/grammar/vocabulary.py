"""What a grammar needs to know of a tokenizer: the bytes of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

MAX_LENGTH = 16  # bytes of a token in the shortest spelling of a text; few are longer


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
        """The first token of each short text."""
        found: dict[bytes, int] = {}
        for token_id, spelled in enumerate(self.tokens):
            if 0 < len(spelled) <= MAX_LENGTH and token_id not in self.special_ids:
                found.setdefault(spelled, token_id)
        return found

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest such token that it pays to think of."""
        return min(MAX_LENGTH, max(map(len, self.ids), default=0))
