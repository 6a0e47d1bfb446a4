"""/v1/completions: schema -> requests, one a prompt; pieces of text -> chunks.

A choice's index is that of its prompt * n + that of its sequence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import chain
from typing import Any

from fastapi import APIRouter, Request, Response

from octavo.base.errors import RequestError
from octavo.base.plan import TokenLogprobs
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
    told_once,
)
from octavo.serve.openai.refusals import Refusals
from octavo.serve.openai.schemas import CompletionBody
from octavo.serve.openai.structure import check_shape, fields_of, structure
from octavo.serve.openai.text_choice import Asked, TextChoice
from octavo.serve.openai.wire import Completion, Usage
from octavo.serve.openapi import answers
from octavo.serve.owner import Owner
from octavo.serve.stream import EventStream, json_answer, while_connected
from octavo.text.assembler import TextDelta
from octavo.text.detokenizer import Detokenizer

DEFAULT_MAX_TOKENS = 16  # the API's


def routes(generation: Generation, model: ServedModel, refusals: Refusals) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/completions", responses=answers(Completion, Completion))
    async def create_completion(body: CompletionBody, http: Request, owner: Owner) -> Response:
        refusals.check(body)
        model.check(body.model)
        answer = Completions(generation, Heading("cmpl", model), Extras.of(body))
        return await answer.respond(await answer.asked(body, owner), bool(body.stream), http)

    return router


class Completions:
    """One answer in the making; choices for each prompt, in the order of the prompts."""

    def __init__(self, generation: Generation, heading: Heading, extras: Extras) -> None:
        self.heading = heading
        self._generation = generation
        self._extras = extras

    async def asked(self, body: CompletionBody, owner: str) -> list[Asked]:
        """Raises:
        RequestError: the client asked for something impossible.
        """
        shape = structure(body)
        fields = completion_fields(body) | fields_of(shape)
        params = await self._generation.params(fields, DEFAULT_MAX_TOKENS)
        await check_shape(self._generation, params, shape)
        given = listed(body.prompt)
        prompts = await asyncio.gather(
            *(self._encoded(prompt, body.add_special_tokens) for prompt in given)
        )
        if body.cache_explain and len(prompts) > 1:
            raise RequestError(
                f"cache_explain tells of one prompt, got {len(prompts)}; "
                "/v1/cache/explain/ID?index=... tells of each",
                "cache_explain",
            )
        names = (engine_id(self.heading.id, i * params.n) for i in range(len(prompts)))
        requests = [
            self._generation.request(ids, params, **labels(body, name, owner))
            for ids, name in zip(prompts, names, strict=True)
        ]
        skip = params.skip_special_tokens
        echoes = [self._text(prompt, skip) if body.echo else None for prompt in given]
        return [
            Asked(request, echo, body.prompt_logprobs)
            for request, echo in zip(requests, echoes, strict=True)
        ]

    async def respond(self, asked: list[Asked], stream: bool, http: Request) -> Response:
        if stream:
            return EventStream(self.chunks(asked), self.heading.http)
        whole = await while_connected(http.receive, self.whole(asked))
        return json_answer(whole, self.heading.http)

    async def whole(self, asked: list[Asked]) -> Completion:
        tally, told = _tally(asked), [list[TokenLogprobs]() for _ in asked]
        wholes = [[Whole() for _ in range(one.request.params.n)] for one in asked]
        async with aclosing(self._pieces(asked)) as pieces:
            async for prompt, piece in pieces:
                tally.add(prompt, piece)
                told[prompt] += piece.prompt_logprobs or ()
                wholes[prompt][piece.index].add(piece)
        found = zip(chain(*self._choices(asked, told)), chain(*wholes), strict=True)
        return Completion(
            **self.heading.fields,
            **told_once(asked[0].request.params),
            choices=[choice.whole(whole) for choice, whole in found],
            usage=await self._usage(tally, asked),
        )

    async def chunks(self, asked: list[Asked]) -> AsyncGenerator[Completion, None]:
        """An echo if wanted, text as it comes, each choice's finish reason alone, the usage if
        wanted."""
        tally, told = _tally(asked), [list[TokenLogprobs]() for _ in asked]
        choices = self._choices(asked, told)
        once = told_once(asked[0].request.params)
        async with aclosing(self._pieces(asked)) as pieces:
            async for prompt, piece in pieces:
                tally.add(prompt, piece)
                told[prompt] += piece.prompt_logprobs or ()
                for choice in choices[prompt][piece.index].take(piece):
                    usage = tally.for_chunk(self._extras)
                    yield Completion(**self.heading.fields, **once, choices=[choice], usage=usage)
                    once = {}
        if self._extras.usage:
            usage = await self._usage(tally, asked)
            yield Completion(**self.heading.fields, choices=[], usage=usage)

    def _choices(
        self, asked: list[Asked], told: list[list[TokenLogprobs]]
    ) -> list[list[TextChoice]]:
        """By prompt."""
        return [
            [
                TextChoice(self._generation.tokenizer, self._extras, prompt * n + i, one, mine)
                for i in range(n)
            ]
            for prompt, (one, mine) in enumerate(zip(asked, told, strict=True))
            for n in [one.request.params.n]
        ]

    async def _usage(self, tally: Tally, asked: list[Asked]) -> Usage:
        first = asked[0].request
        return await last_usage(self._generation, self._extras, tally, self.heading.id, first)

    def _pieces(self, asked: list[Asked]) -> AsyncGenerator[tuple[int, TextDelta], None]:
        return merge([self._generation.stream(one.request) for one in asked])

    async def _encoded(self, prompt: str | list[int], add_special_tokens: bool) -> list[int]:
        if isinstance(prompt, str):
            return await self._generation.encode(prompt, add_special_tokens)
        return prompt

    def _text(self, prompt: str | list[int], skip_special_tokens: bool) -> str:
        """Of a prompt; the answer's text goes on from it."""
        if isinstance(prompt, str):
            return prompt
        return Detokenizer(self._generation.tokenizer, (), skip_special_tokens).push(prompt)


def completion_fields(body: CompletionBody) -> dict[str, Any]:
    """An echo's logprobs are those of the prompt; an answer of no tokens is one that tells of it.

    Raises:
        RequestError: an echo is to tell of a part of the prompt only.
    """
    fields = text_fields(body)
    if not body.echo:
        return fields
    if body.prompt_logprob_start:
        raise RequestError("prompt_logprob_start does not go with echo", "prompt_logprob_start")
    wanted = [k for k in (body.logprobs, body.prompt_logprobs) if k is not None]
    if not wanted and (body.logprob_token_ids is not None or body.max_tokens == 0):
        wanted = [0]
    if wanted:
        fields["prompt_logprobs"] = -1 if -1 in wanted else max(wanted)
    return fields


def listed(prompt: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """Every form of `prompt` as a list of prompts."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], int):
        return [prompt]
    return list(prompt)


def _tally(asked: list[Asked]) -> Tally:
    return Tally(sum(len(one.request.prompt_token_ids) for one in asked))
