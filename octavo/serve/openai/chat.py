"""/v1/chat/completions: schema -> request, pieces of text -> chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import UNSET

from octavo.base import request as engine
from octavo.base.errors import RequestError
from octavo.base.plan import TokenLogprobs
from octavo.base.structured import Thinking
from octavo.engine.history import Outline
from octavo.serve.generation import Generation
from octavo.serve.models import ServedModel
from octavo.serve.openai.answer import (
    Extras,
    Heading,
    Tally,
    labels,
    last_usage,
    sampling_fields,
    told_once,
)
from octavo.serve.openai.chat_choice import ChatMaker
from octavo.serve.openai.constraint import constraint
from octavo.serve.openai.logprobs import prompt_logprobs
from octavo.serve.openai.refusals import Refusals
from octavo.serve.openai.said import Said
from octavo.serve.openai.schemas import ChatBody
from octavo.serve.openai.structure import check_shape, fields_of, structure
from octavo.serve.openai.template import outline, template_fields, template_messages
from octavo.serve.openai.tools import ToolUse, tool_use
from octavo.serve.openai.wire import ChatChunk, ChatChunkChoice, ChatCompletion, Usage
from octavo.serve.openapi import answers
from octavo.serve.owner import Owner
from octavo.serve.stream import EventStream, json_answer, while_connected
from octavo.text.formats.output_format import OutputFormat

_NO_BUDGET = "thinking_token_budget: this model does not reason before it answers"


def routes(generation: Generation, model: ServedModel, refusals: Refusals) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", responses=answers(ChatCompletion, ChatChunk))
    async def create_chat_completion(body: ChatBody, http: Request, owner: Owner) -> Response:
        refusals.check(body)
        model.check(body.model)
        chat = Chat(generation, Heading("chatcmpl", model), Extras.of(body))
        asked = await chat.asked(body, owner)
        of_prompt = outline(
            generation.renderer, await http.body(), len(asked.request.prompt_token_ids)
        )
        if body.stream:
            return EventStream(chat.chunks(asked, of_prompt), chat.heading.http)
        whole = await while_connected(
            http.receive, chat.whole(asked, of_prompt, body.prompt_logprobs)
        )
        return json_answer(whole, chat.heading.http)

    return router


@dataclass(frozen=True)
class Asked:
    """A request to the engine, and how its answers are read."""

    request: engine.Request
    format: OutputFormat
    thinking: Thinking | None
    tools: ToolUse | None
    shows_reasoning: bool

    def said(self) -> Said:
        """For one of its sequences."""
        tools = self.tools.tools if self.tools is not None else []
        named = self.tools is not None and self.tools.named
        return Said(self.format.parser(tools, self.thinking), self.shows_reasoning, named)


class Chat:
    """One chat answer in the making; a choice for each of the request's sequences."""

    def __init__(self, generation: Generation, heading: Heading, extras: Extras) -> None:
        self.heading = heading
        self._generation = generation
        self._extras = extras

    async def asked(self, body: ChatBody, owner: str) -> Asked:
        """Raises:
        RequestError: the client asked for something impossible.
        """
        self._check_top(body.top_logprobs)
        fields, tools = chat_fields(body), tool_use(body)
        renderer = self._generation.renderer
        shape = constraint(renderer, tools, structure(body))
        prompt = await self._generation.encode_chat(
            template_messages(body.messages), **template_fields(body)
        )
        thinking = renderer.format.thinking(prompt, body.thinking_token_budget)
        if body.thinking_token_budget is not None and thinking is None:
            raise RequestError(_NO_BUDGET, "thinking_token_budget")
        if shape is not None or body.thinking_token_budget is not None:
            fields["thinking"] = thinking
        params = await self._generation.params(fields | fields_of(shape), None)
        await check_shape(self._generation, params, shape)
        request = self._generation.request(prompt, params, **labels(body, self.heading.id, owner))
        return Asked(request, renderer.format, thinking, tools, body.include_reasoning is not False)

    async def whole(
        self, asked: Asked, outline: Outline | None, of_prompt: int | None
    ) -> ChatCompletion:
        """`of_prompt`: the likeliest tokens to tell of at each position of the prompt."""
        request = asked.request
        tally, told = Tally(len(request.prompt_token_ids)), list[TokenLogprobs]()
        makers = self._makers(asked)
        async with aclosing(self._generation.stream(request, outline)) as pieces:
            async for piece in pieces:
                tally.add(0, piece)
                told += piece.prompt_logprobs or ()
                makers[piece.index].add(piece)
        tally.reasoning = sum(maker.reasoning_tokens for maker in makers)
        return ChatCompletion(
            **self.heading.fields,
            **told_once(request.params),
            choices=[maker.whole() for maker in makers],
            usage=await self._usage(tally, request),
            prompt_token_ids=self._extras.ids(request.prompt_token_ids),
            prompt_logprobs=UNSET
            if of_prompt is None
            else prompt_logprobs(self._generation.tokenizer, request, told, of_prompt),
        )

    async def chunks(
        self, asked: Asked, outline: Outline | None
    ) -> AsyncGenerator[ChatChunk, None]:
        """The roles first, then what is said as it comes, each choice's finish reason alone, the
        usage if wanted."""
        request = asked.request
        tally = Tally(len(request.prompt_token_ids))
        makers = self._makers(asked)
        opened = False
        async with aclosing(self._generation.stream(request, outline)) as pieces:
            async for piece in pieces:
                for maker in () if opened else makers:
                    yield self._opening(maker.opening(), request, tally)
                opened = True
                maker = makers[piece.index]
                tally.add(0, piece)
                tally.reasoning -= maker.reasoning_tokens
                choices = maker.take(piece)
                tally.reasoning += maker.reasoning_tokens
                for choice in choices:
                    yield self._around(choice, tally)
        if self._extras.usage:
            usage = await self._usage(tally, request)
            yield ChatChunk(**self.heading.fields, choices=[], usage=usage)

    def _makers(self, asked: Asked) -> list[ChatMaker]:
        tokenizer, request = self._generation.tokenizer, asked.request
        return [
            ChatMaker(tokenizer, self._extras, i, request, asked.said())
            for i in range(request.params.n)
        ]

    async def _usage(self, tally: Tally, request: engine.Request) -> Usage:
        return await last_usage(self._generation, self._extras, tally, self.heading.id, request)

    def _opening(self, choice: ChatChunkChoice, request: engine.Request, tally: Tally) -> ChatChunk:
        chunk = self._around(choice, tally)
        if choice.index:
            return chunk
        ids = self._extras.ids(request.prompt_token_ids)
        once = told_once(request.params)
        return msgspec.structs.replace(chunk, prompt_token_ids=ids, **once)

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
