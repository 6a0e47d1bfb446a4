"""Logprobs in the two forms the API has for them."""

from __future__ import annotations

import codecs

from octavo.base.plan import TokenLogprobs
from octavo.serve.openai.wire import ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob
from octavo.text.tokenizer import Tokenizer

LOWEST = -9999.0  # for minus infinity, which JSON lacks


def chat_logprobs(tokenizer: Tokenizer, drawn: list[TokenLogprobs]) -> ChatLogprobs:
    return ChatLogprobs([_token(tokenizer, entry) for entry in drawn])


def _token(tokenizer: Tokenizer, drawn: TokenLogprobs) -> TokenLogprob:
    top = [TopLogprob(*_spelled(tokenizer, id, logprob)) for id, logprob in drawn.top]
    return TokenLogprob(*_spelled(tokenizer, drawn.token_id, drawn.logprob), top)


def _spelled(tokenizer: Tokenizer, id: int, logprob: float) -> tuple[str, float, list[int]]:
    return tokenizer.token(id), max(logprob, LOWEST), list(tokenizer.token_bytes(id))


class OffsetLogprobs:
    """The text-completions form. Offsets follow the tokens, not the text that is held back."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0  # characters that the tokens so far make

    def take(self, drawn: list[TokenLogprobs]) -> CompletionLogprobs:
        return CompletionLogprobs(
            [self._tokenizer.token(entry.token_id) for entry in drawn],
            [max(entry.logprob, LOWEST) for entry in drawn],
            [self._top(entry) for entry in drawn],
            [self._advance(entry.token_id) for entry in drawn],
        )

    def _top(self, drawn: TokenLogprobs) -> dict[str, float]:
        """Likeliest first; the drawn token is always there. Of equal strings the first counts."""
        top: dict[str, float] = {}
        for id, logprob in (*drawn.top, (drawn.token_id, drawn.logprob)):
            top.setdefault(self._tokenizer.token(id), max(logprob, LOWEST))
        return top

    def _advance(self, id: int) -> int:
        """Where token `id` begins."""
        begin = self._offset
        if id not in self._hidden:
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(id)))
        return begin
