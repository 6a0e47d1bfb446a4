"""Reasoning, calls and structure as server-sent events, byte for byte but for ids and the time."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from fake_engine import FakeEngine
from fastapi import FastAPI
from shapes import ADD, CHAT, USER, WEATHER, shaped_app, tool
from test_golden_events import OPENING, chat, delta, transcript

CALL_PARIS = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CALL_ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
CALL_NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
NAMED = {"type": "function", "function": {"name": "add"}}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(per_delta=8, max_model_len=4096)


@pytest.fixture
def app(engine: FakeEngine) -> FastAPI:
    return shaped_app(engine)


async def lines_of(http: httpx.AsyncClient, **body: object) -> list[str]:
    lines = await transcript(http, CHAT, **{"messages": USER, **body})
    return [re.sub(r'"id":"call_\w{24}"', '"id":"call"', line) for line in lines]


def text(content: str) -> str:
    return chat(delta(f'"content":{json.dumps(content)}'))


def reasoning(content: str) -> str:
    said = json.dumps(content)
    return chat(delta(f'"reasoning":{said},"reasoning_content":{said}'))


def begun(index: int, name: str) -> str:
    function = f'{{"name":"{name}","arguments":""}}'
    call = f'{{"index":{index},"id":"call","type":"function","function":{function}}}'
    return chat(delta(f'"tool_calls":[{call}]'))


def arguments(index: int, piece: str) -> str:
    call = f'{{"index":{index},"function":{{"arguments":{json.dumps(piece)}}}}}'
    return chat(delta(f'"tool_calls":[{call}]'))


def ending(reason: str, more: str = "") -> list[str]:
    return [chat(delta("", f'"{reason}"', more)), "[DONE]"]


async def test_reasoning(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.says = "<think>\nA capital?\n</think>\n\nParis."
    assert await lines_of(http) == [
        OPENING,
        reasoning("A capi"),
        reasoning("tal?"),
        text("Paris."),
        *ending("stop"),
    ]


async def test_reasoning_that_is_not_shown(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.says = "<think>\nA capital?\n</think>\n\nParis."
    options = {"include_usage": True}
    lines = await lines_of(http, include_reasoning=False, stream_options=options)
    assert lines[1] == text("Paris.").replace("]}", '],"usage":null}')
    details = json.loads(lines[-2])["usage"]["completion_tokens_details"]
    assert details["reasoning_tokens"] == len("\nA capital?\n")


async def test_a_call(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.says = f"Let me see.\n{CALL_PARIS}"
    assert await lines_of(http, tools=[WEATHER, ADD]) == [
        OPENING,
        text("Let me s"),
        text("ee."),
        begun(0, "weather"),
        arguments(0, "{"),
        arguments(0, '"city": '),
        arguments(0, '"Paris"}'),
        *ending("tool_calls"),
    ]


async def test_parallel_calls_after_reasoning(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.per_delta = 1000
    engine.says = f"<think>\nTwo.\n</think>\n\n{CALL_ADD}\n{CALL_NOW}"
    assert await lines_of(http, tools=[tool("now"), ADD]) == [
        OPENING,
        reasoning("Two."),
        begun(0, "add"),
        arguments(0, '{"a": 2, "b": 3}'),
        begun(1, "now"),
        arguments(1, "{}"),
        *ending("tool_calls"),
    ]


async def test_a_named_call_ends_with_stop(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.per_delta = 1000
    engine.says = CALL_ADD
    assert await lines_of(http, tools=[ADD], tool_choice=NAMED) == [
        OPENING,
        begun(0, "add"),
        arguments(0, '{"a": 2, "b": 3}'),
        *ending("stop", ',"structured":{"complete":true,"closed_at":null}'),
    ]


async def test_structure(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.says = '{"a": 1}'
    lines = await lines_of(http, response_format={"type": "json_object"})
    assert lines == [
        OPENING,
        text('{"a": 1}'),
        *ending("stop", ',"structured":{"complete":true,"closed_at":null}'),
    ]


async def test_a_cut_structure_is_not_complete(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.says = '{"a": 1}'
    lines = await lines_of(http, response_format={"type": "json_object"}, max_tokens=4)
    more = ',"structured":{"complete":false,"closed_at":null}'
    assert lines[1:] == [text('{"a"'), *ending("length", more)]


async def test_tokens_are_told_of_once(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    """With the first chunk of those that their piece makes, or with an empty one."""
    engine.says = CALL_ADD
    fields = {"tools": [ADD], "logprobs": True, "return_token_ids": True}
    lines = await lines_of(http, **fields)
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    told = [choice for choice in choices if choice["logprobs"] is not None]
    ids = [id for choice in told for id in choice["token_ids"]]
    tokens = [entry["token"] for choice in told for entry in choice["logprobs"]["content"]]
    assert "".join(tokens) == f"{CALL_ADD}<|im_end|>"
    assert len(ids) == len(tokens)
    assert told[0]["delta"] == {"content": ""}
    assert all("token_ids" not in choice for choice in choices if choice["logprobs"] is None)
