"""/v1/cache/explain: what the cache held of a prompt, and why not more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from octavo.serve.choices import find_choice
from octavo.serve.generation import Generation
from octavo.serve.openai.schemas import Index
from octavo.serve.openai.wire import CacheReport
from octavo.serve.openapi import answers
from octavo.serve.owner import Owner
from octavo.serve.stream import json_answer


def routes(generation: Generation) -> APIRouter:
    router = APIRouter(tags=["KV cache"])

    @router.get("/v1/cache/explain/{request_id}", responses=answers(CacheReport))
    async def explain(
        request_id: str, owner: Owner, index: Annotated[Index, Query()] = 0
    ) -> Response:
        """Of a running or finished answer; `index` is that of a choice."""
        record, _ = find_choice(generation.history, owner, request_id, index)
        return json_answer(await generation.explain(record, request_id))

    return router
