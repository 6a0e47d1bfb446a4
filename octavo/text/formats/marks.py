"""Marker tokens within text.

A marker such as <tool_call> is one token in most vocabularies. Then only that token counts, and a
text that spells it is text. To keep the two apart, a marker token stands in the text as one lone
surrogate, which decoded text never has. A marker that is no token stays as it is spelled.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping

from octavo.text.assembler import TextDelta

_FIRST = 0xD800  # code point of the first surrogate
_MOST = 2048


class Marks:
    """The marker tokens of some literals."""

    def __init__(self, added: Mapping[str, int], literals: Iterable[str]) -> None:
        """`added`: the vocabulary's tokens that ordinary text never becomes a part of."""
        longest_first = sorted(filter(None, added), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        found = {text: added[text] for one in literals for text in self._pattern.findall(one)}
        assert len(found) <= _MOST
        self.characters = {id: chr(_FIRST + i) for i, id in enumerate(found.values())}
        self.texts = {self.characters[id]: text for text, id in found.items()}
        self.ids = {char: id for id, char in self.characters.items()}

    def spelled(self, text: str) -> str:
        """`text` with each marker token in it as its character."""
        return self._pattern.sub(self._character, text)

    def removed(self, text: str) -> str:
        """`text` without any token that ordinary text never becomes a part of."""
        return self._pattern.sub("", text)

    def _character(self, match: re.Match[str]) -> str:
        char = next((c for c, text in self.texts.items() if text == match[0]), None)
        return match[0] if char is None else char


class MarkedText:
    """The text of one answer as it comes, with its marker tokens in it."""

    def __init__(self, marks: Marks) -> None:
        self.shown: dict[int, str] = {}  # of a marker's character: the text that clients see of it
        self.starts: list[int] = []  # of each token's text, in characters of what is given out
        self._marks = marks
        self._given = 0  # characters given out
        self._text = ""  # not yet given out
        self._at = 0  # where it begins, in characters of the text without markers
        self._spelled = 0  # characters of that text that the tokens so far make
        self._tokens: deque[tuple[int, int, str]] = deque()  # start, end, a marker's character

    def feed(self, delta: TextDelta) -> str:
        """What is certain now; all of it with the last delta."""
        begin = self._at + len(self._text)
        self._text += delta.text
        for id, end in zip(delta.token_ids, delta.ends or (), strict=False):
            self._take(id, begin + end)
        last = delta.finish_reason is not None
        given = "".join(self._pieces(last))
        self._given += len(given)
        return given

    def _take(self, id: int, end: int) -> None:
        start, self._spelled = self._spelled, end
        char = self._marks.characters.get(id, "")
        if char:  # a broken character may have ended before the marker
            start = max(start, end - len(self._marks.texts[char]))
        self._tokens.append((start, end, char))

    def _pieces(self, last: bool) -> Iterable[str]:
        given = self._given
        while self._tokens:
            start, end, char = self._tokens[0]
            if self._at + len(self._text) < (end if char else start) and not last:
                break
            self._tokens.popleft()
            piece = self._cut(start)
            given += len(piece)
            self.starts.append(given)
            yield piece
            if char:
                self.shown[ord(char)] = self._cut(end)
                given += 1
                yield char
        if not self._tokens or not self._tokens[0][2]:
            yield self._cut(self._at + len(self._text))
        else:
            yield self._cut(self._tokens[0][0])

    def _cut(self, end: int) -> str:
        """The text up to there; none where that has been passed."""
        piece = self._text[: max(end - self._at, 0)]
        self._text = self._text[len(piece) :]
        self._at += len(piece)
        return piece
