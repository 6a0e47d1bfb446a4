"""What the tests of structure and tools share."""

from __future__ import annotations

from typing import Any

from fake_engine import REASONING_AND_CALLS, FakeEngine, byte_renderer
from fastapi import FastAPI

from octavo.base.settings import ServerSettings
from octavo.serve.app import build_app

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


def tool(name: str, strict: bool | None = None, **parameters: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}, **parameters}
    function: dict[str, Any] = {"name": name, "parameters": schema}
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


WEATHER = tool("weather", properties={"city": {"type": "string"}}, required=["city"])
ADD = tool("add", properties={"a": {"type": "integer"}, "b": {"type": "integer"}})


def shaped_app(engine: FakeEngine) -> FastAPI:
    """A model with reasoning and calls."""
    return build_app(engine, byte_renderer(REASONING_AND_CALLS), ServerSettings(), seed=7)
