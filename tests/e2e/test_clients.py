"""Structured answers and calls by instructor and LangChain, as their users write it.

They want other versions of packages than Octavo's tests: `make conformance` makes them an
environment, .venv-clients. The model is tiny and random, and says what a logits processor makes it
say, under the masks that the requests' grammars make.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scripted_server import scripted_server

CLIENTS = Path(__file__).parent / "clients"
PYTHON = Path(__file__).parents[2] / ".venv-clients/bin/python"
USER = {"name": "Ann Lee", "age": 41, "tags": ["a", "b"]}
CALL = ["add", {"a": 2, "b": 3}]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-clients: make conformance"),
]


@pytest.fixture
async def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    async with scripted_server(tmp_path, monkeypatch) as url:
        yield url


def run(program: str, url: str) -> dict[str, Any]:
    command = [str(PYTHON), str(CLIENTS / program), url]
    theirs = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=theirs, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_instructor(url: str) -> None:
    found = run("by_instructor.py", url)
    assert set(found) == {"TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "JSON"}
    for mode, answers in found.items():
        assert answers["whole"] == answers["last"] == USER, mode
        assert answers["parts"] > 2, mode


def test_langchain(url: str) -> None:
    found = run("by_langchain.py", url)
    for method in ("json_schema", "function_calling", "json_mode"):
        assert found[method] == {"whole": USER, "last": USER}, method
    for way, reason in {
        "auto": "tool_calls",
        "any": "tool_calls",
        "named": "stop",
        "strict": "tool_calls",
    }.items():
        assert found[way]["whole"] == found[way]["streamed"] == [CALL], way
        assert found[way]["finish_reason"] == reason
    assert found["two"]["whole"] == found["two"]["streamed"] == [CALL, CALL]
    assert (found["none"]["whole"], found["none"]["content"]) == ([], "It is 5.")
