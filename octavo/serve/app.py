"""The HTTP application: every route, behind the gate, with every error in one shape."""

from __future__ import annotations

from fastapi import FastAPI

from octavo.base.settings import ServerSettings
from octavo.engine.client import AsyncEngine
from octavo.grammar.service import CompileService
from octavo.serve import cache, errors, fork, ops, tokens
from octavo.serve.gate import BodyGate, EchoRequestId
from octavo.serve.generation import Generation
from octavo.serve.metrics import Metrics
from octavo.serve.models import ServedModel
from octavo.serve.openai import chat, completions, models
from octavo.serve.openai.refusals import Refusals
from octavo.serve.openapi import DescribedApp
from octavo.text.renderer import Renderer


def build_app(
    engine: AsyncEngine,
    renderer: Renderer,
    settings: ServerSettings,
    *,
    other_names: tuple[str, ...] = (),
    structures: CompileService | None = None,
    seed: int | None = None,
) -> FastAPI:
    """The application on a running engine, which stays its caller's to close, as do `structures`.

    `other_names`: what clients may call the model besides its served name. `seed`: of the seeds
    given to requests that bring none.
    """
    model = ServedModel(engine.info, settings.served_model_name or engine.info.model, other_names)
    generation = Generation(
        engine,
        renderer,
        Metrics(engine, model.name),
        structures=structures,
        seed=seed,
        log_requests=settings.log_requests,
    )
    refusals = Refusals()
    app = DescribedApp(title="Octavo", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(chat.routes(generation, model, refusals))
    app.include_router(completions.routes(generation, model, refusals))
    app.include_router(fork.routes(generation, model, refusals))
    app.include_router(cache.routes(generation))
    app.include_router(models.routes(model))
    app.include_router(tokens.routes(generation, model, refusals))
    app.include_router(ops.routes(generation))
    errors.install(app)
    app.add_middleware(BodyGate, limit=settings.max_body_bytes)
    app.add_middleware(EchoRequestId)  # outermost: refusals of the gate carry the id too
    return app
