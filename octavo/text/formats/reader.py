"""Text that comes in pieces, read by generators that wait for more where it matters.

So a parser is written as if all text were there, and reads the same whatever the pieces are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

_T = TypeVar("_T")
Wait = Generator[None, None, _T]  # yields where it needs more text

_WORDS = re.compile(r"\s+|\S+")
_SPACES = re.compile(r"\s*")


class Broken(Exception):
    """The text is not what the format says."""


class Words:
    """Literals to be searched for at once."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted({word for word in words if word}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._words)) or "(?!)")

    def search(self, text: str, begin: int) -> re.Match[str] | None:
        return self._pattern.search(text, begin)

    def partial(self, text: str, begin: int) -> int:
        """Where an end of `text` begins that one of them may begin with."""
        starts = [
            len(text) - size
            for word in self._words
            for size in range(min(len(word) - 1, len(text) - begin), 0, -1)
            if text.endswith(word[:size])
        ]
        return min(starts, default=len(text))


class Reader:
    """What has come and was not used yet."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0  # in `text`
        self.ended = False
        self._dropped = 0  # characters before `text`

    def feed(self, text: str, last: bool) -> None:
        self.text += text
        self.ended = last

    @property
    def position(self) -> int:
        """Characters that were used."""
        return self._dropped + self.at

    def seek(self, position: int) -> None:
        """Back to a position; none before a `drop`."""
        self.at = position - self._dropped

    def drop(self) -> None:
        """Forget what was used."""
        self._dropped += self.at
        self.text, self.at = self.text[self.at :], 0

    def peek(self) -> Wait[str]:
        """The next character, unused; "" at the end."""
        while self.at == len(self.text) and not self.ended:
            yield
        return self.text[self.at : self.at + 1]

    def literal(self, value: str) -> Wait[bool]:
        """Whether exactly this comes next; then it is used."""
        while True:
            here = self.text[self.at : self.at + len(value)]
            if here == value:
                self.at += len(value)
                return True
            if self.ended or not value.startswith(here):
                return False
            yield

    def spaces(self) -> Wait[None]:
        """Use white space."""
        while True:
            match = _SPACES.match(self.text, self.at)
            assert match is not None
            self.at = match.end()
            if self.at < len(self.text) or self.ended:
                return
            yield

    def written(self, literal: str) -> Wait[bool]:
        """Whether this comes next, with any white space before it and where it has some itself."""
        begin = self.position
        yield from self.spaces()
        for word in _WORDS.findall(literal):
            if word.isspace():
                yield from self.spaces()
            elif not (yield from self.literal(word)):
                self.seek(begin)
                return False
        return True

    def expect(self, literal: str) -> Wait[None]:
        if not (yield from self.written(literal)):
            raise Broken

    def run(self, pattern: re.Pattern[str]) -> Wait[str]:
        """The longest match, of a pattern that is a repetition of characters."""
        while True:
            match = pattern.match(self.text, self.at)
            end = self.at if match is None else match.end()
            if end < len(self.text) or self.ended:
                found, self.at = self.text[self.at : end], end
                return found
            yield

    def scan(self, words: Words, out: Callable[[str], None]) -> Wait[str]:
        """Give text out until one of `words` comes next, which is not used; "" at the end."""
        while True:
            hit = words.search(self.text, self.at)
            end = len(self.text) if hit is None else hit.start()
            if not self.ended:
                end = min(end, words.partial(self.text, self.at))
            piece, self.at = self.text[self.at : end], end
            found = hit[0] if hit is not None and end == hit.start() else ""
            out(piece)
            if found:
                return found
            if self.ended:
                return ""
            yield

    def until(self, word: str) -> Wait[str]:
        """The text before `word`; that is used too."""
        pieces: list[str] = []
        if not (yield from self.scan(Words([word]), pieces.append)):
            raise Broken
        self.at += len(word)
        return "".join(pieces)
