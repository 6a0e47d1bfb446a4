"""Finds stop strings in a text that comes in pieces. Knows characters only."""

from __future__ import annotations


class StopStrings:
    """Passes text through up to the stop string that ends first.

    Of several that end at the same character the longest wins. Held back is only the longest end
    of the text that a stop string begins with, so at most the longest string's length less one.
    One pass over the text: for each string, how much of it the text ends with, after Knuth, Morris
    and Pratt ("Fast pattern matching in strings", 1977).
    """

    def __init__(self, stops: tuple[str, ...], include: bool = False) -> None:
        """`include`: the stop string that is found stays in the text."""
        self.hit: str | None = None  # the one found; nothing may be pushed after it
        self._include = include
        self._searches = [_Search(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._held = ""

    def push(self, text: str, armed: bool = True) -> str:
        """The text that is certain to be shown now.

        Where `armed` is false, a stop string that ends in `text` does not count; one that only
        begins there still may.
        """
        if not self._searches:
            return text
        self._held += text
        for index, char in enumerate(text):
            ended = [search.stop for search in self._searches if search.step(char)]
            if ended and armed:
                self.hit = ended[0]
                return self._cut(self.hit, len(self._held) - len(text) + index + 1)
        return self._release()

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held

    def _cut(self, stop: str, end: int) -> str:
        shown = self._held[: end if self._include else end - len(stop)]
        self._held = ""
        return shown

    def _release(self) -> str:
        keep = max(search.matched for search in self._searches)
        certain = len(self._held) - keep
        shown, self._held = self._held[:certain], self._held[certain:]
        return shown


class _Search:
    """How much of one stop string the text ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0  # characters; less than the whole string
        self._shorter = _borders(stop)

    def step(self, char: str) -> bool:
        """Take one more character; whether the whole string ends here."""
        matched = self.matched
        while matched and self.stop[matched] != char:
            matched = self._shorter[matched - 1]
        if self.stop[matched] == char:
            matched += 1
        whole = matched == len(self.stop)
        self.matched = self._shorter[matched - 1] if whole else matched
        return whole


def _borders(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of the longest shorter prefix that it ends with."""
    borders = [0] * len(stop)
    length = 0
    for end in range(1, len(stop)):
        while length and stop[end] != stop[length]:
            length = borders[length - 1]
        if stop[end] == stop[length]:
            length += 1
        borders[end] = length
    return borders
