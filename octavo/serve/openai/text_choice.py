"""One choice of a text completion, made of its sequence's pieces: whole, or chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request
from octavo.serve.openai.answer import Extras, Whole, told_of_shape
from octavo.serve.openai.logprobs import OffsetLogprobs, joined, prompt_logprobs
from octavo.serve.openai.wire import CompletionChoice, CompletionLogprobs, PromptLogprobs
from octavo.text.assembler import TextDelta
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Asked:
    """One prompt of a completion, and what is to be shown of it."""

    request: Request
    echo: str | None = None  # its text, where answers begin with it
    prompt_logprobs: int | None = None  # likeliest tokens to tell of at each of its positions


class TextChoice:
    """`told` is of the prompt's tokens, for all choices of it; it is complete when their first
    tokens come."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        extras: Extras,
        index: int,
        asked: Asked,
        told: list[TokenLogprobs],
    ) -> None:
        self._tokenizer = tokenizer
        self._extras = extras
        self._index = index
        self._asked = asked
        self._told = told
        self._prompt = extras.ids(asked.request.prompt_token_ids)  # goes out with the first chunk
        self._echo_is_due = asked.echo is not None
        self._offsets = None
        if asked.request.params.logprobs is not None:
            self._offsets = OffsetLogprobs(tokenizer, asked.request)

    def whole(self, whole: Whole) -> CompletionChoice:
        logprobs = self._echo_logprobs() if self._asked.echo is not None else None
        if self._offsets is not None:
            mine = self._offsets.take(whole.logprobs)
            logprobs = mine if logprobs is None else joined(logprobs, mine)
        return CompletionChoice(
            index=self._index,
            text=(self._asked.echo or "") + whole.text,
            logprobs=logprobs,
            finish_reason=whole.finish_reason,
            stop_reason=whole.stop_reason,
            structured=told_of_shape(self._asked.request.params, whole),
            token_ids=self._extras.ids(whole.token_ids),
            prompt_token_ids=self._prompt,
            prompt_logprobs=self._of_prompt(),
        )

    def take(self, piece: TextDelta) -> list[CompletionChoice]:
        """For chunks: nothing, the echo, text, the ending, or several of these."""
        found = []
        if self._echo_is_due and (piece.token_ids or piece.finish_reason):
            self._echo_is_due = False
            found.append(self._text(self._asked.echo or "", self._echo_logprobs(), UNSET))
        logprobs = self._logprobs(piece)
        if piece.text or logprobs or (self._extras.token_ids and piece.token_ids):
            found.append(self._text(piece.text, logprobs, self._extras.ids(piece.token_ids)))
        return [*found, self._ending(piece)] if piece.finish_reason else found

    def _text(
        self, text: str, logprobs: CompletionLogprobs | None, token_ids: list[int] | UnsetType
    ) -> CompletionChoice:
        prompt, self._prompt = self._prompt, UNSET
        return CompletionChoice(
            index=self._index,
            text=text,
            logprobs=logprobs,
            token_ids=token_ids,
            prompt_token_ids=prompt,
        )

    def _ending(self, piece: TextDelta) -> CompletionChoice:
        reason = UNSET if piece.stop_reason is None else piece.stop_reason
        return CompletionChoice(
            index=self._index,
            text="",
            finish_reason=piece.finish_reason,
            stop_reason=reason,
            structured=told_of_shape(self._asked.request.params, piece),
        )

    def _logprobs(self, piece: TextDelta) -> CompletionLogprobs | None:
        if self._offsets is None or not piece.logprobs:
            return None
        return self._offsets.take(piece.logprobs)

    def _echo_logprobs(self) -> CompletionLogprobs | None:
        if self._offsets is None:
            return None
        return self._offsets.echo(self._asked.echo or "", self._told)

    def _of_prompt(self) -> PromptLogprobs | UnsetType:
        most = self._asked.prompt_logprobs
        if most is None:
            return UNSET
        return prompt_logprobs(self._tokenizer, self._asked.request, self._told, most)
