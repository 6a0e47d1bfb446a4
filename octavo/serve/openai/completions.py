"""/v1/completions: schema -> requests, one a prompt; pieces of text -> chunks.

A choice's index is that of its prompt * n + that of its sequence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from fastapi import APIRouter, Request, Response

from octavo.base import request as engine
from octavo.base.errors import RequestError
from octavo.serve.choices import engine_id
from octavo.serve.generation import Generation
from octavo.serve.merge import merge
from octavo.serve.models import ServedModel
from octavo.serve.openai.answer import (
    Extras,
    Heading,
    Tally,
    Whole,
    labels,
    last_usage,
    text_fields,
)
from octavo.serve.openai.logprobs import OffsetLogprobs
from octavo.serve.openai.refusals import Refusals
from octavo.serve.openai.schemas import CompletionBody
from octavo.serve.openai.wire import Completion, CompletionChoice, CompletionLogprobs, Usage
from octavo.serve.openapi import answers
from octavo.serve.owner import Owner
from octavo.serve.stream import EventStream, json_answer, while_connected
from octavo.text.assembler import TextDelta

DEFAULT_MAX_TOKENS = 16  # the API's


def routes(generation: Generation, model: ServedModel, refusals: Refusals) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/completions", responses=answers(Completion, Completion))
    async def create_completion(body: CompletionBody, http: Request, owner: Owner) -> Response:
        refusals.check(body)
        model.check(body.model)
        answer = Completions(generation, Heading("cmpl", model), Extras.of(body))
        return await answer.respond(await answer.requests(body, owner), bool(body.stream), http)

    return router


class Completions:
    """One answer in the making; choices for each prompt, in the order of the prompts."""

    def __init__(self, generation: Generation, heading: Heading, extras: Extras) -> None:
        self.heading = heading
        self._generation = generation
        self._extras = extras

    async def requests(self, body: CompletionBody, owner: str) -> list[engine.Request]:
        """Raises:
        RequestError: the client asked for something impossible.
        """
        params = self._generation.params(text_fields(body), DEFAULT_MAX_TOKENS)
        prompts = await asyncio.gather(
            *(self._encoded(prompt, body.add_special_tokens) for prompt in listed(body.prompt))
        )
        if body.cache_explain and len(prompts) > 1:
            raise RequestError(
                f"cache_explain tells of one prompt, got {len(prompts)}; "
                "/v1/cache/explain/ID?index=... tells of each",
                "cache_explain",
            )
        names = (engine_id(self.heading.id, i * params.n) for i in range(len(prompts)))
        return [
            self._generation.request(ids, params, **labels(body, name, owner))
            for ids, name in zip(prompts, names, strict=True)
        ]

    async def respond(
        self, requests: list[engine.Request], stream: bool, http: Request
    ) -> Response:
        if stream:
            return EventStream(self.chunks(requests), self.heading.http)
        whole = await while_connected(http.receive, self.whole(requests))
        return json_answer(whole, self.heading.http)

    async def whole(self, requests: list[engine.Request]) -> Completion:
        tally = _tally(requests)
        wholes = [[Whole() for _ in range(request.params.n)] for request in requests]
        async with aclosing(self._pieces(requests)) as pieces:
            async for prompt, piece in pieces:
                tally.add(prompt, piece)
                wholes[prompt][piece.index].add(piece)
        found = [
            (request, whole)
            for request, mine in zip(requests, wholes, strict=True)
            for whole in mine
        ]
        return Completion(
            **self.heading.fields,
            choices=[self._choice(i, request, whole) for i, (request, whole) in enumerate(found)],
            usage=await self._usage(tally, requests),
        )

    async def chunks(self, requests: list[engine.Request]) -> AsyncGenerator[Completion, None]:
        """Text as it comes, each choice's finish reason alone, the usage if wanted."""
        tally = _tally(requests)
        choices = [
            [
                ChoiceChunks(self._generation, self._extras, prompt * request.params.n + i, request)
                for i in range(request.params.n)
            ]
            for prompt, request in enumerate(requests)
        ]
        async with aclosing(self._pieces(requests)) as pieces:
            async for prompt, piece in pieces:
                tally.add(prompt, piece)
                for choice in choices[prompt][piece.index].take(piece):
                    usage = tally.for_chunk(self._extras)
                    yield Completion(**self.heading.fields, choices=[choice], usage=usage)
        if self._extras.usage:
            usage = await self._usage(tally, requests)
            yield Completion(**self.heading.fields, choices=[], usage=usage)

    async def _usage(self, tally: Tally, requests: list[engine.Request]) -> Usage:
        return await last_usage(self._generation, self._extras, tally, self.heading.id, requests[0])

    def _pieces(
        self, requests: list[engine.Request]
    ) -> AsyncGenerator[tuple[int, TextDelta], None]:
        return merge([self._generation.stream(request) for request in requests])

    async def _encoded(self, prompt: str | list[int], add_special_tokens: bool) -> list[int]:
        if isinstance(prompt, str):
            return await self._generation.encode(prompt, add_special_tokens)
        return prompt

    def _choice(self, index: int, request: engine.Request, whole: Whole) -> CompletionChoice:
        params = request.params
        logprobs = None
        if params.logprobs is not None:
            offsets = OffsetLogprobs(self._generation.tokenizer, params.skip_special_tokens)
            logprobs = offsets.take(whole.logprobs)
        return CompletionChoice(
            index=index,
            text=whole.text,
            logprobs=logprobs,
            finish_reason=whole.finish_reason,
            stop_reason=whole.stop_reason,
            token_ids=self._extras.ids(whole.token_ids),
            prompt_token_ids=self._extras.ids(request.prompt_token_ids),
        )


class ChoiceChunks:
    """Turns one sequence's pieces into choices of chunks."""

    def __init__(
        self, generation: Generation, extras: Extras, index: int, request: engine.Request
    ) -> None:
        self._index = index
        self._extras = extras
        self._prompt = extras.ids(request.prompt_token_ids)  # goes out with the first chunk
        self._offsets = None
        if request.params.logprobs is not None:
            skip = request.params.skip_special_tokens
            self._offsets = OffsetLogprobs(generation.tokenizer, skip)

    def take(self, piece: TextDelta) -> list[CompletionChoice]:
        """Nothing, text, the ending, or both."""
        logprobs = self._logprobs(piece)
        due = piece.text or logprobs or (self._extras.token_ids and piece.token_ids)
        found = [self._text(piece, logprobs)] if due else []
        return [*found, self._ending(piece)] if piece.finish_reason else found

    def _text(self, piece: TextDelta, logprobs: CompletionLogprobs | None) -> CompletionChoice:
        prompt, self._prompt = self._prompt, msgspec.UNSET
        return CompletionChoice(
            index=self._index,
            text=piece.text,
            logprobs=logprobs,
            token_ids=self._extras.ids(piece.token_ids),
            prompt_token_ids=prompt,
        )

    def _ending(self, piece: TextDelta) -> CompletionChoice:
        reason = msgspec.UNSET if piece.stop_reason is None else piece.stop_reason
        return CompletionChoice(
            index=self._index, text="", finish_reason=piece.finish_reason, stop_reason=reason
        )

    def _logprobs(self, piece: TextDelta) -> CompletionLogprobs | None:
        if self._offsets is None or not piece.logprobs:
            return None
        return self._offsets.take(piece.logprobs)


def listed(prompt: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """Every form of `prompt` as a list of prompts."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], int):
        return [prompt]
    return list(prompt)


def _tally(requests: list[engine.Request]) -> Tally:
    return Tally(sum(len(request.prompt_token_ids) for request in requests))
