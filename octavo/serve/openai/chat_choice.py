"""One choice of a chat answer, made of its sequence's pieces: whole, or chunk by chunk."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from octavo.base.request import Request
from octavo.serve.openai.answer import Extras, Whole, told_of_shape
from octavo.serve.openai.logprobs import chat_logprobs
from octavo.serve.openai.said import Said
from octavo.serve.openai.wire import ChatChoice, ChatChunkChoice, ChatDelta, ChatLogprobs
from octavo.text.assembler import TextDelta
from octavo.text.tokenizer import Tokenizer


class ChatMaker:
    """Of one sequence of `request`."""

    def __init__(
        self, tokenizer: Tokenizer, extras: Extras, index: int, request: Request, said: Said
    ) -> None:
        self._tokenizer = tokenizer
        self._extras = extras
        self._index = index
        self._params = request.params
        self._said = said
        self._whole = Whole()

    @property
    def reasoning_tokens(self) -> int:
        """So far."""
        return self._said.reasoning_tokens

    def add(self, piece: TextDelta) -> None:
        """For a whole answer."""
        self._whole.add(piece)
        self._said.take(piece)

    def whole(self) -> ChatChoice:
        whole = self._whole
        return ChatChoice(
            index=self._index,
            message=self._said.message(),
            logprobs=self._logprobs(whole),
            finish_reason=self._said.finish_reason(whole.finish_reason),
            stop_reason=whole.stop_reason,
            structured=told_of_shape(self._params, whole),
            token_ids=self._extras.ids(whole.token_ids),
        )

    def opening(self) -> ChatChunkChoice:
        return self._chunk(ChatDelta(role="assistant", content=""))

    def take(self, piece: TextDelta) -> list[ChatChunkChoice]:
        """For chunks: what the piece says, the ending, both or neither. What is told of the tokens
        goes with the first of these, before any text where it is held back."""
        deltas = self._said.take(piece)
        logprobs = self._logprobs(piece)
        if not deltas and (logprobs or (self._extras.token_ids and piece.token_ids)):
            deltas = [ChatDelta(content="")]
        found = [self._chunk(delta) for delta in deltas[1:]]
        if deltas:
            found.insert(0, self._chunk(deltas[0], logprobs, self._extras.ids(piece.token_ids)))
        return [*found, self._ending(piece)] if piece.finish_reason else found

    def _chunk(
        self,
        delta: ChatDelta,
        logprobs: ChatLogprobs | None = None,
        token_ids: list[int] | UnsetType = UNSET,
    ) -> ChatChunkChoice:
        return ChatChunkChoice(
            index=self._index, delta=delta, logprobs=logprobs, token_ids=token_ids
        )

    def _ending(self, piece: TextDelta) -> ChatChunkChoice:
        return ChatChunkChoice(
            index=self._index,
            delta=ChatDelta(),
            finish_reason=self._said.finish_reason(piece.finish_reason or ""),
            stop_reason=UNSET if piece.stop_reason is None else piece.stop_reason,
            structured=told_of_shape(self._params, piece),
        )

    def _logprobs(self, of: TextDelta | Whole) -> ChatLogprobs | None:
        if self._params.logprobs is None or not of.token_ids:
            return None
        return chat_logprobs(self._tokenizer, of.logprobs or [])
