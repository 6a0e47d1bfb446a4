"""/v1/fork: go on from any token of an answer, with what it has computed."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from octavo.base import request as engine
from octavo.base.errors import RequestError
from octavo.serve.choices import find_choice
from octavo.serve.generation import Generation
from octavo.serve.models import ServedModel
from octavo.serve.openai.answer import Extras, Heading, labels, text_fields
from octavo.serve.openai.completions import Completions
from octavo.serve.openai.refusals import Refusals
from octavo.serve.openai.schemas import ForkBody
from octavo.serve.openai.structure import check_shape, fields_of, structure
from octavo.serve.openai.text_choice import Asked
from octavo.serve.openai.wire import Completion
from octavo.serve.openapi import answers
from octavo.serve.owner import Owner


def routes(generation: Generation, model: ServedModel, refusals: Refusals) -> APIRouter:
    router = APIRouter(tags=["KV cache"])

    @router.post("/v1/fork", responses=answers(Completion, Completion))
    async def fork(body: ForkBody, http: Request, owner: Owner) -> Response:
        """Continue a running or finished answer from any of its tokens."""
        refusals.check(body)
        model.check(body.model)
        answer = Completions(generation, Heading("fork", model), Extras.of(body))
        request = await _request(generation, body, answer.heading.id, owner)
        asked = Asked(request, prompt_logprobs=body.prompt_logprobs)
        return await answer.respond([asked], bool(body.stream), http)

    return router


async def _request(
    generation: Generation, body: ForkBody, request_id: str, owner: str
) -> engine.Request:
    """Raises:
    NotFoundError: the owner has no such answer.
    RequestError: it has no such choice or token, or the client asked for something impossible.
    """
    if body.cache_salt is not None:
        raise RequestError("cache_salt is that of the forked request", "cache_salt")
    record, child = find_choice(generation.history, owner, body.request_id, body.index)
    source = record.request
    kept = record.tokens(child, body.at_token)
    if isinstance(body.text, str):
        more = await generation.encode(body.text, False, "text") if body.text else []
    else:
        generation.check_vocabulary(more := body.text, "text")
    shape = structure(body)
    fields = text_fields(body) | fields_of(shape)
    params = await generation.settled(record.params_of_fork(**fields))
    await check_shape(generation, params, shape)
    same = {"cache_salt": source.cache_salt, "fork_of": source.request_id}
    return generation.request([*kept, *more], params, **(labels(body, request_id, owner) | same))
