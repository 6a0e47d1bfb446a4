"""How few tokens spell a text that grows at its front."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.grammar.vocabulary import Vocabulary

IMPOSSIBLE = 2**20  # tokens: more than any answer has


class Spelling:
    """A text and what follows it, as far as a token before it may reach into it."""

    __slots__ = ("counts", "first", "text")

    def __init__(self, text: bytes, counts: Sequence[int], first: int | None) -> None:
        self.text = text
        self.counts = counts  # by offset, 0 to the length of `text`: tokens from there to the end
        self.first = first  # token of the fewest that spell it all; None: there is no text

    def before(self, piece: bytes | int, vocabulary: Vocabulary) -> Spelling:
        """With a text, or one token, in front."""
        if isinstance(piece, int):
            return Spelling(b"", (1 + self.counts[0],), piece)
        if not piece:
            return self
        text = piece + self.text
        counts = _counts(text, self.counts, vocabulary)
        kept = min(len(text), vocabulary.longest)
        return Spelling(text[:kept], counts[: kept + 1], _token(text, 0, counts, vocabulary))


NO_TEXT = Spelling(b"", (0,), None)


def spelled(text: bytes, vocabulary: Vocabulary) -> list[int] | None:
    """The fewest tokens that spell `text`; None where some byte has none."""
    counts = _counts(text, (0,), vocabulary)
    if counts[0] >= IMPOSSIBLE:
        return None
    tokens, at = [], 0
    while at < len(text):
        token = _token(text, at, counts, vocabulary)
        assert token is not None
        tokens.append(token)
        at += len(vocabulary.tokens[token])
    return tokens


def _counts(text: bytes, known: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """By offset, the fewest tokens that spell the rest; `known` of the last offsets."""
    ids, longest, size = vocabulary.ids, vocabulary.longest, len(text)
    begin = size + 1 - len(known)
    counts = [IMPOSSIBLE] * begin + list(known)
    for at in range(begin - 1, -1, -1):
        best = IMPOSSIBLE - 1
        for end in range(at + 1, min(at + longest, size) + 1):
            if counts[end] < best and text[at:end] in ids:
                best = counts[end]
        counts[at] = best + 1
    return counts


def _token(text: bytes, at: int, counts: Sequence[int], vocabulary: Vocabulary) -> int | None:
    """The first of the fewest tokens from an offset on."""
    for end in range(at + 1, min(at + vocabulary.longest, len(text)) + 1):
        if counts[end] == counts[at] - 1 and text[at:end] in vocabulary.ids:
            return vocabulary.ids[text[at:end]]
    return None
