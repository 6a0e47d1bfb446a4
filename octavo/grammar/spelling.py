"""How few tokens spell a text that grows at its front."""

from __future__ import annotations

from octavo.grammar.vocabulary import Vocabulary

IMPOSSIBLE = 2**20  # tokens: more than any answer has


class Spelling:
    """A text and what follows it, as far as a token before it may reach into it."""

    __slots__ = ("counts", "text")

    def __init__(self, text: bytes, counts: tuple[int, ...]) -> None:
        self.text = text
        self.counts = counts  # by offset, 0 to the length of `text`: tokens from there to the end

    def before(self, piece: bytes | int, vocabulary: Vocabulary) -> Spelling:
        """With a text, or one token, in front."""
        if isinstance(piece, int):
            return Spelling(b"", (1 + self.counts[0],))
        if not piece:
            return self
        text, ids = piece + self.text, vocabulary.ids
        counts = [IMPOSSIBLE] * len(piece) + list(self.counts)
        for at in range(len(piece) - 1, -1, -1):
            for end in range(at + 1, min(at + vocabulary.longest, len(text)) + 1):
                if counts[end] < counts[at] and text[at:end] in ids:
                    counts[at] = counts[end]
            counts[at] = min(counts[at] + 1, IMPOSSIBLE)
        kept = min(len(text), vocabulary.longest)
        return Spelling(text[:kept], tuple(counts[: kept + 1]))


NO_TEXT = Spelling(b"", (0,))
