"""/v1/chat/completions: schema -> request, pieces of text -> chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from octavo.base import request as engine
from octavo.base.errors import RequestError
from octavo.serve.generation import Generation
from octavo.serve.models import ServedModel
from octavo.serve.openai.answer import Extras, Heading, Tally, Whole, labels, sampling_fields
from octavo.serve.openai.logprobs import chat_logprobs
from octavo.serve.openai.refusals import Refusals
from octavo.serve.openai.schemas import ChatBody, Message, TemplateBody
from octavo.serve.openai.wire import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
)
from octavo.serve.openapi import answers
from octavo.serve.stream import EventStream, json_answer, while_connected
from octavo.text.assembler import TextDelta


def routes(generation: Generation, model: ServedModel, refusals: Refusals) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", responses=answers(ChatCompletion, ChatChunk))
    async def create_chat_completion(body: ChatBody, http: Request) -> Response:
        refusals.check(body)
        model.check(body.model)
        chat = Chat(generation, Heading("chatcmpl", model), Extras.of(body))
        request = await chat.request(body)
        if body.stream:
            return EventStream(chat.chunks(request), chat.heading.http)
        whole = await while_connected(http.receive, chat.whole(request))
        return json_answer(whole, chat.heading.http)

    return router


class Chat:
    """One chat answer in the making."""

    def __init__(self, generation: Generation, heading: Heading, extras: Extras) -> None:
        self.heading = heading
        self._generation = generation
        self._extras = extras

    async def request(self, body: ChatBody) -> engine.Request:
        """Raises:
        RequestError: the client asked for something impossible.
        """
        params = self._generation.params(chat_fields(body), None)
        prompt = await self._generation.encode_chat(
            template_messages(body.messages), **template_fields(body)
        )
        return self._generation.request(prompt, params, **labels(body, self.heading.id))

    async def whole(self, request: engine.Request) -> ChatCompletion:
        tally, whole = Tally(len(request.prompt_token_ids)), Whole()
        async with aclosing(self._generation.stream(request)) as pieces:
            async for piece in pieces:
                tally.add(0, piece)
                whole.add(piece)
        choice = ChatChoice(
            index=0,
            message=ChatMessage("assistant", whole.text),
            logprobs=self._logprobs(request, whole),
            finish_reason=whole.finish_reason,
            stop_reason=whole.stop_reason,
            token_ids=self._extras.ids(whole.token_ids),
        )
        return ChatCompletion(
            **self.heading.fields,
            choices=[choice],
            usage=tally.usage(),
            prompt_token_ids=self._extras.ids(request.prompt_token_ids),
        )

    async def chunks(self, request: engine.Request) -> AsyncGenerator[ChatChunk, None]:
        """The role first, then text as it comes, the finish reason alone, the usage if wanted."""
        tally = Tally(len(request.prompt_token_ids))
        opened = False
        async with aclosing(self._generation.stream(request)) as pieces:
            async for piece in pieces:
                if not opened:
                    opened = True
                    yield self._opening(request, tally)
                tally.add(0, piece)
                if chunk := self._chunk(request, piece, tally):
                    yield chunk
                if piece.finish_reason:
                    yield self._ending(piece, tally)
        if self._extras.usage:
            yield ChatChunk(**self.heading.fields, choices=[], usage=tally.usage())

    def _opening(self, request: engine.Request, tally: Tally) -> ChatChunk:
        choice = ChatChunkChoice(index=0, delta=ChatDelta(role="assistant", content=""))
        chunk = self._around(choice, tally)
        ids = self._extras.ids(request.prompt_token_ids)
        return msgspec.structs.replace(chunk, prompt_token_ids=ids)

    def _chunk(self, request: engine.Request, piece: TextDelta, tally: Tally) -> ChatChunk | None:
        """None where there is nothing to say yet, as text is held back."""
        logprobs = self._logprobs(request, piece)
        if not (piece.text or logprobs or (self._extras.token_ids and piece.token_ids)):
            return None
        choice = ChatChunkChoice(
            index=0,
            delta=ChatDelta(content=piece.text),
            logprobs=logprobs,
            token_ids=self._extras.ids(piece.token_ids),
        )
        return self._around(choice, tally)

    def _ending(self, piece: TextDelta, tally: Tally) -> ChatChunk:
        choice = ChatChunkChoice(
            index=0,
            delta=ChatDelta(),
            finish_reason=piece.finish_reason,
            stop_reason=msgspec.UNSET if piece.stop_reason is None else piece.stop_reason,
        )
        return self._around(choice, tally)

    def _around(self, choice: ChatChunkChoice, tally: Tally) -> ChatChunk:
        usage = tally.for_chunk(self._extras)
        return ChatChunk(**self.heading.fields, choices=[choice], usage=usage)

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


def template_fields(body: TemplateBody) -> dict[str, Any]:
    """Raises:
    RequestError: a final message cannot be continued and a new one begun.
    """
    if body.add_generation_prompt and body.continue_final_message:
        raise RequestError(
            "continue_final_message and add_generation_prompt exclude each other",
            "continue_final_message",
        )
    variables = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    generation_prompt = body.add_generation_prompt
    if generation_prompt is None:
        generation_prompt = not body.continue_final_message
    return {
        "add_generation_prompt": generation_prompt,
        "continue_final_message": body.continue_final_message,
        "add_special_tokens": bool(body.add_special_tokens),
        "documents": body.documents,
        "variables": variables,
    }


def template_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """The messages as a template knows them, with all that clients put into them."""
    return [message.model_dump(exclude_unset=True) for message in messages]
