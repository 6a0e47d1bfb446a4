"""Token ids to text as they come. Knows one sequence; no stop strings, no requests."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from octavo.text.spelling import leading_spaces
from octavo.text.tokenizer import Tokenizer

_LONGEST_CHARACTER = 4  # bytes, in UTF-8


class Detokenizer:
    """The text that tokens add to a prompt, in pieces.

    Joined, the pieces are exactly what decoding prompt and output at once adds to the prompt's
    whole characters. A piece never ends inside a character: an unfinished one waits for its
    missing bytes, or becomes U+FFFD when they cannot come any more.

    A token costs one lookup of its bytes and their UTF-8 decoding, whatever came before, since a
    text is its tokens' bytes in a row (see `spelling`): nothing is ever decoded twice, and what
    is kept between tokens is at most three bytes.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        skip_special_tokens: bool = True,
    ) -> None:
        self._bytes_of = tokenizer.token_bytes
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        end = self._end_of(prompt_token_ids)
        self._utf8.decode(end)  # keeps the start of a character that the prompt leaves unfinished
        self._strip = 0 if end else tokenizer.spelling.strip  # spaces still to be taken away

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that is certain now. Ids that the vocabulary lacks have no text."""
        hidden = self._hidden
        spelled = b"".join(self._bytes_of(id) for id in token_ids if id not in hidden)
        return self._without_start(self._utf8.decode(spelled))

    def finish(self) -> str:
        """What waited for more bytes; nothing may be pushed after it."""
        return self._without_start(self._utf8.decode(b"", final=True))

    def _end_of(self, prompt_token_ids: Sequence[int]) -> bytes:
        """The prompt's last bytes: enough to hold an unfinished character. Looks at the last few
        tokens only, unless they are hidden ones."""
        end = b""
        for id in reversed(prompt_token_ids):
            if id not in self._hidden:
                end = self._bytes_of(id) + end
            if len(end) >= _LONGEST_CHARACTER:
                break
        return end

    def _without_start(self, text: str) -> str:
        if not self._strip:
            return text
        gone = leading_spaces(text, self._strip)
        self._strip = self._strip - gone if gone == len(text) else 0
        return text[gone:]
