"""Logprobs in the forms the API has for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from octavo.answer import by_token
from octavo.base.output import Logprob
from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request
from octavo.serve.openai.wire import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)
from octavo.text.detokenizer import Detokenizer
from octavo.text.tokenizer import Tokenizer

LOWEST = -9999.0  # for minus infinity, which JSON lacks


def chat_logprobs(tokenizer: Tokenizer, drawn: list[TokenLogprobs]) -> ChatLogprobs:
    return ChatLogprobs([_token(tokenizer, entry) for entry in drawn])


def prompt_logprobs(
    tokenizer: Tokenizer, request: Request, told: list[TokenLogprobs], most: int
) -> PromptLogprobs:
    """As vLLM has them: null for the first token, which follows nothing, and for those that the
    client wants nothing of. `most`: likeliest tokens to tell of; -1: all that are known."""
    untold = len(request.prompt_token_ids) - len(told)
    return [None] * untold + [_by_id(tokenizer, _trimmed(entry, most)) for entry in told]


def _by_id(tokenizer: Tokenizer, entry: TokenLogprobs) -> dict[int, Logprob]:
    found = by_token(entry, tokenizer)
    return {
        token: msgspec.structs.replace(one, logprob=max(one.logprob, LOWEST))
        for token, one in found.items()
    }


def _trimmed(entry: TokenLogprobs, most: int) -> TokenLogprobs:
    return entry if most < 0 else msgspec.structs.replace(entry, top=entry.top[:most])


def _token(tokenizer: Tokenizer, drawn: TokenLogprobs) -> TokenLogprob:
    """The likeliest first, those that the client named among them."""
    top = [
        TopLogprob(*_spelled(tokenizer, id, logprob)) for id, logprob in _sorted(drawn, drawn.top)
    ]
    mass = UNSET if drawn.log_mass is None else drawn.log_mass
    return TokenLogprob(*_spelled(tokenizer, drawn.token_id, drawn.logprob), top, mass)


def _spelled(tokenizer: Tokenizer, id: int, logprob: float) -> tuple[str, float, list[int]]:
    return tokenizer.token(id), max(logprob, LOWEST), list(tokenizer.token_bytes(id))


def _sorted(entry: TokenLogprobs, top: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """`top` and the named tokens, each once, likeliest first."""
    return sorted(dict((*top, *entry.named)).items(), key=lambda pair: -pair[1])


class OffsetLogprobs:
    """The text-completions form, of one sequence. Offsets follow the tokens, not the text that is
    held back."""

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        self._tokenizer = tokenizer
        self._request = request
        self._detokenizer = Detokenizer(
            tokenizer, request.prompt_token_ids, request.params.skip_special_tokens
        )
        self._offset = 0  # characters that the tokens so far make

    def echo(self, text: str, told: list[TokenLogprobs]) -> CompletionLogprobs:
        """Of the prompt, which is shown as `text`; comes before all else. `told`: of every token
        but the first."""
        ids = self._request.prompt_token_ids
        most = self._request.params.logprobs
        assert most is not None and len(told) == len(ids) - 1, "what an echo needs was not told"
        entries = [_trimmed(entry, most) for entry in told]
        offsets = self._places(text, ids)
        self._offset = len(text)
        return CompletionLogprobs(
            [self._tokenizer.token(id) for id in ids],
            [None, *(max(entry.logprob, LOWEST) for entry in entries)],
            [None, *(self._top(entry) for entry in entries)],
            offsets,
            [None] * len(ids) if self._processed else UNSET,
        )

    def take(self, drawn: list[TokenLogprobs]) -> CompletionLogprobs:
        return CompletionLogprobs(
            [self._tokenizer.token(entry.token_id) for entry in drawn],
            [max(entry.logprob, LOWEST) for entry in drawn],
            [self._top(entry) for entry in drawn],
            [self._advance(entry.token_id) for entry in drawn],
            [entry.log_mass for entry in drawn] if self._processed else UNSET,
        )

    @property
    def _processed(self) -> bool:
        params = self._request.params
        return params.logprobs_mode == "processed" and not params.use_beam_search

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """Likeliest first; the token itself is always there. Of equal strings the first counts."""
        top: dict[str, float] = {}
        for id, logprob in _sorted(entry, (*entry.top, (entry.token_id, entry.logprob))):
            top.setdefault(self._tokenizer.token(id), max(logprob, LOWEST))
        return top

    def _advance(self, id: int) -> int:
        """Where token `id` begins."""
        begin = self._offset
        self._offset += len(self._detokenizer.push((id,)))
        return begin

    def _places(self, text: str, ids: list[int]) -> list[int]:
        """Where each of the prompt's tokens begins in `text`, which has those special tokens that
        the client wrote, and not those that were added."""
        detokenizer = Detokenizer(self._tokenizer, (), skip_special_tokens=False)
        places, place = [], 0
        for id in ids:
            places.append(min(place, len(text)))
            special = id in self._tokenizer.special_ids
            if not special or text.startswith(self._tokenizer.token(id), place):
                place += len(detokenizer.push((id,)))
        return places


def joined(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    """One after the other."""
    mass: list[float | None] | UnsetType = UNSET
    if first.log_mass is not UNSET and second.log_mass is not UNSET:
        mass = first.log_mass + second.log_mass
    return CompletionLogprobs(
        first.tokens + second.tokens,
        first.token_logprobs + second.token_logprobs,
        first.top_logprobs + second.top_logprobs,
        first.text_offset + second.text_offset,
        mass,
    )
