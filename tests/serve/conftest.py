"""A server on a fake engine: in the process for exact tests, on a port for disconnects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fake_engine import FakeEngine, byte_renderer
from fastapi import FastAPI

from octavo.base.settings import ServerSettings
from octavo.serve.app import build_app

SETTINGS = ServerSettings(max_body_bytes=100_000)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def app(engine: FakeEngine) -> FastAPI:
    return build_app(engine, byte_renderer(), SETTINGS, other_names=("./models/tiny",), seed=7)


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        yield client
