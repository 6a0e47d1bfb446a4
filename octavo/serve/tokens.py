"""/tokenize and /detokenize: the prompt a request would have, without running it."""

from __future__ import annotations

from fastapi import APIRouter, Response

from octavo.base.errors import RequestError
from octavo.serve.generation import Generation
from octavo.serve.models import ServedModel
from octavo.serve.openai.refusals import Refusals
from octavo.serve.openai.schemas import DetokenizeBody, TokenizeBody
from octavo.serve.openai.template import template_fields, template_messages
from octavo.serve.openai.wire import Detokenized, Tokenized
from octavo.serve.openapi import answers
from octavo.serve.stream import json_answer


def routes(generation: Generation, model: ServedModel, refusals: Refusals) -> APIRouter:
    router = APIRouter(tags=["tokens"])
    tokenizer = generation.tokenizer

    @router.post("/tokenize", responses=answers(Tokenized))
    async def tokenize(body: TokenizeBody) -> Response:
        """Token ids of a text, or of messages as the chat template writes them."""
        refusals.check(body)
        model.check(body.model)
        ids = await _encoded(generation, body)
        strings = [tokenizer.token(id) for id in ids] if body.return_token_strs else None
        return json_answer(
            Tokenized(
                count=len(ids),
                max_model_len=generation.max_model_len,
                tokens=ids,
                token_strs=strings,
            )
        )

    @router.post("/detokenize", responses=answers(Detokenized))
    async def detokenize(body: DetokenizeBody) -> Response:
        """The text of token ids, special tokens included."""
        refusals.check(body)
        model.check(body.model)
        generation.check_vocabulary(body.tokens, "tokens")
        return json_answer(Detokenized(tokenizer.decode(body.tokens, skip_special_tokens=False)))

    return router


async def _encoded(generation: Generation, body: TokenizeBody) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("exactly one of prompt and messages must be given", "prompt")
    if body.prompt is not None:
        return await generation.encode(body.prompt, body.add_special_tokens is not False)
    messages = template_messages(body.messages or [])
    return await generation.encode_chat(messages, **template_fields(body))
