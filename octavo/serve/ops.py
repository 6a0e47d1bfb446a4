"""Routes for operators: is it alive, how is it doing."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from octavo.base.errors import EngineDeadError
from octavo.serve.generation import Generation
from octavo.serve.openai.wire import Health
from octavo.serve.openapi import answers
from octavo.serve.stream import json_answer


def routes(generation: Generation) -> APIRouter:
    router = APIRouter(tags=["operation"])

    @router.get("/health", responses=answers(Health))
    async def health() -> Response:
        """200 while the engine lives, else 503 saying why it does not."""
        if generation.dead is not None:
            raise EngineDeadError(f"the engine is gone: {generation.dead}")
        return json_answer(Health("ok"))

    @router.get("/metrics")
    async def metrics() -> Response:
        """Prometheus text format."""
        return Response(generation.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router
