"""A server whose model is tiny and random, and says what a request's script makes it say, under the
masks that the request's grammar makes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tiny_chat import tiny_chat_model

from octavo.bench.online import own_server

ROOT = Path(__file__).parents[1]


@asynccontextmanager
async def scripted_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Its URL. A script is the argument of the logits processor `script`."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/e2e/clients"), prepend=":")
    model = tiny_chat_model(folder / "model", max_position_embeddings=4096)
    flags = ["--dtype", "float32", "--kv-memory", "64MiB", "--threads", "1"]
    flags += ["--served-model-name", "tiny"]
    flags += ["--chat-template", str(ROOT / "examples/tools.jinja")]
    flags += ["--logits-processors", "script=script_processor:Script"]
    async with own_server(str(model), flags) as url:
        yield url
