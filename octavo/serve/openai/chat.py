"""/v1/chat/completions: schema -> request, pieces of text -> chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import UNSET

from octavo.base import request as engine
from octavo.base.errors import RequestError
from octavo.base.plan import TokenLogprobs
from octavo.engine.history import Outline
from octavo.serve.generation import Generation
from octavo.serve.models import ServedModel
from octavo.serve.openai.answer import (
    Extras,
    Heading,
    Tally,
    Whole,
    labels,
    last_usage,
    sampling_fields,
    told_once,
)
from octavo.serve.openai.logprobs import chat_logprobs, prompt_logprobs
from octavo.serve.openai.refusals import Refusals
from octavo.serve.openai.schemas import ChatBody
from octavo.serve.openai.template import outline, template_fields, template_messages
from octavo.serve.openai.wire import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Usage,
)
from octavo.serve.openapi import answers
from octavo.serve.owner import Owner
from octavo.serve.stream import EventStream, json_answer, while_connected
from octavo.text.assembler import TextDelta


def routes(generation: Generation, model: ServedModel, refusals: Refusals) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", responses=answers(ChatCompletion, ChatChunk))
    async def create_chat_completion(body: ChatBody, http: Request, owner: Owner) -> Response:
        refusals.check(body)
        model.check(body.model)
        chat = Chat(generation, Heading("chatcmpl", model), Extras.of(body))
        request = await chat.request(body, owner)
        of_prompt = outline(generation.renderer, await http.body(), len(request.prompt_token_ids))
        if body.stream:
            return EventStream(chat.chunks(request, of_prompt), chat.heading.http)
        whole = await while_connected(
            http.receive, chat.whole(request, of_prompt, body.prompt_logprobs)
        )
        return json_answer(whole, chat.heading.http)

    return router


class Chat:
    """One chat answer in the making; a choice for each of the request's sequences."""

    def __init__(self, generation: Generation, heading: Heading, extras: Extras) -> None:
        self.heading = heading
        self._generation = generation
        self._extras = extras

    async def request(self, body: ChatBody, owner: str) -> engine.Request:
        """Raises:
        RequestError: the client asked for something impossible.
        """
        self._check_top(body.top_logprobs)
        params = await self._generation.params(chat_fields(body), None)
        prompt = await self._generation.encode_chat(
            template_messages(body.messages), **template_fields(body)
        )
        return self._generation.request(prompt, params, **labels(body, self.heading.id, owner))

    async def whole(
        self, request: engine.Request, outline: Outline | None, of_prompt: int | None
    ) -> ChatCompletion:
        """`of_prompt`: the likeliest tokens to tell of at each position of the prompt."""
        tally, told = Tally(len(request.prompt_token_ids)), list[TokenLogprobs]()
        wholes = [Whole() for _ in range(request.params.n)]
        async with aclosing(self._generation.stream(request, outline)) as pieces:
            async for piece in pieces:
                tally.add(0, piece)
                told += piece.prompt_logprobs or ()
                wholes[piece.index].add(piece)
        return ChatCompletion(
            **self.heading.fields,
            **told_once(request.params),
            choices=[self._choice(i, request, whole) for i, whole in enumerate(wholes)],
            usage=await self._usage(tally, request),
            prompt_token_ids=self._extras.ids(request.prompt_token_ids),
            prompt_logprobs=UNSET
            if of_prompt is None
            else prompt_logprobs(self._generation.tokenizer, request, told, of_prompt),
        )

    async def chunks(
        self, request: engine.Request, outline: Outline | None
    ) -> AsyncGenerator[ChatChunk, None]:
        """The roles first, then text as it comes, each choice's finish reason alone, the usage if
        wanted."""
        tally = Tally(len(request.prompt_token_ids))
        opened = False
        async with aclosing(self._generation.stream(request, outline)) as pieces:
            async for piece in pieces:
                for index in range(0 if opened else request.params.n):
                    yield self._opening(index, request, tally)
                opened = True
                tally.add(0, piece)
                if chunk := self._chunk(request, piece, tally):
                    yield chunk
                if piece.finish_reason:
                    yield self._ending(piece, tally)
        if self._extras.usage:
            usage = await self._usage(tally, request)
            yield ChatChunk(**self.heading.fields, choices=[], usage=usage)

    async def _usage(self, tally: Tally, request: engine.Request) -> Usage:
        return await last_usage(self._generation, self._extras, tally, self.heading.id, request)

    def _choice(self, index: int, request: engine.Request, whole: Whole) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=ChatMessage("assistant", whole.text),
            logprobs=self._logprobs(request, whole),
            finish_reason=whole.finish_reason,
            stop_reason=whole.stop_reason,
            token_ids=self._extras.ids(whole.token_ids),
        )

    def _opening(self, index: int, request: engine.Request, tally: Tally) -> ChatChunk:
        choice = ChatChunkChoice(index=index, delta=ChatDelta(role="assistant", content=""))
        chunk = self._around(choice, tally)
        if index:
            return chunk
        ids = self._extras.ids(request.prompt_token_ids)
        once = told_once(request.params)
        return msgspec.structs.replace(chunk, prompt_token_ids=ids, **once)

    def _chunk(self, request: engine.Request, piece: TextDelta, tally: Tally) -> ChatChunk | None:
        """None where there is nothing to say yet, as text is held back."""
        logprobs = self._logprobs(request, piece)
        if not (piece.text or logprobs or (self._extras.token_ids and piece.token_ids)):
            return None
        choice = ChatChunkChoice(
            index=piece.index,
            delta=ChatDelta(content=piece.text),
            logprobs=logprobs,
            token_ids=self._extras.ids(piece.token_ids),
        )
        return self._around(choice, tally)

    def _ending(self, piece: TextDelta, tally: Tally) -> ChatChunk:
        choice = ChatChunkChoice(
            index=piece.index,
            delta=ChatDelta(),
            finish_reason=piece.finish_reason,
            stop_reason=UNSET if piece.stop_reason is None else piece.stop_reason,
        )
        return self._around(choice, tally)

    def _around(self, choice: ChatChunkChoice, tally: Tally) -> ChatChunk:
        usage = tally.for_chunk(self._extras)
        return ChatChunk(**self.heading.fields, choices=[choice], usage=usage)

    def _check_top(self, wanted: int | None) -> None:
        """Raises:
        RequestError: more are wanted than are told; by the name that clients have for it.
        """
        most = self._generation.max_logprobs
        if wanted is not None and most != -1 and not 0 <= wanted <= most:
            raise RequestError(
                f"top_logprobs must be between 0 and {most}, got {wanted}", "top_logprobs"
            )

    def _logprobs(self, request: engine.Request, of: TextDelta | Whole) -> ChatLogprobs | None:
        if request.params.logprobs is None or not of.token_ids:
            return None
        return chat_logprobs(self._generation.tokenizer, of.logprobs or [])


def chat_fields(body: ChatBody) -> dict[str, Any]:
    """Raises:
    RequestError: top_logprobs without logprobs.
    """
    fields = sampling_fields(body)
    if body.max_completion_tokens is not None:
        fields["max_tokens"] = body.max_completion_tokens
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", "top_logprobs")
    if body.logprobs:
        fields["logprobs"] = body.top_logprobs or 0
    return fields
