"""/v1/models."""

from __future__ import annotations

from fastapi import APIRouter, Response

from octavo.serve.models import ServedModel
from octavo.serve.openai.wire import ModelCard, ModelList
from octavo.serve.openapi import answers
from octavo.serve.stream import json_answer


def routes(model: ServedModel) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.get("/v1/models", responses=answers(ModelList))
    async def list_models() -> Response:
        return json_answer(ModelList(data=[model.card]))

    @router.get("/v1/models/{model_id:path}", responses=answers(ModelCard))
    async def retrieve_model(model_id: str) -> Response:
        model.check(model_id)
        return json_answer(model.card)

    return router
