"""What may be said of an answer's shape and of tools: each rule, and what reaches the engine."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from fastapi import FastAPI
from shapes import ADD, CHAT, TEXT, USER, WEATHER, shaped_app, tool

from octavo.base.structured import StructuredOutputsParams

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(max_model_len=4096)


@pytest.fixture
def app(engine: FakeEngine) -> FastAPI:
    return shaped_app(engine)


def format_of(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}


TOOLS = [WEATHER, ADD]
NAMED = {"type": "function", "function": {"name": "add"}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": []}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
    ({"tools": [WEATHER, WEATHER]}, "tools"),
    ({"tools": [tool("a b")]}, "tools[0].function.name"),
    ({"tools": [tool("")]}, "tools[0].function.name"),
    ({"tools": [tool("x" * 65)]}, "tools[0].function.name"),
    ({"tools": [tool("x", type="array")]}, "tools[0].function.parameters"),
    ({"tools": [{"type": "function", "function": {"name": "x", "parameters": [1]}}]}, "tools[0]"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": NAMED}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": NAMED}, "tool_choice"),
    ({"tools": TOOLS, "parallel_tool_calls": "some"}, "parallel_tool_calls"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ({"response_format": format_of("x")}, "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
    ({"guided_json": SCHEMA, "guided_choice": ["a"]}, "guided_choice"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"close_in_time": False}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
    ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice"),
    ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
    ({"structured_outputs": "json"}, "structured_outputs"),
    ({"guided_json": "x" * (2**20 + 1)}, "guided_json"),
    ({"thinking_token_budget": -1}, "thinking_token_budget"),
    ({"include_reasoning": "maybe"}, "include_reasoning"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
        "messages[0].tool_calls[0].function",
    ),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[str(f)[:70] for f, _ in REFUSED])
async def test_a_bad_field_is_named(
    http: httpx.AsyncClient, engine: FakeEngine, fields: dict[str, Any], param: str
) -> None:
    answer = await http.post(CHAT, json={"messages": USER} | fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"].startswith(param), error
    assert len(error["message"]) < 300
    assert engine.requests == []


@pytest.mark.parametrize("fields", [{"tools": TOOLS}, {"thinking_token_budget": 3}])
async def test_text_completions_have_no_tools(
    http: httpx.AsyncClient, fields: dict[str, Any]
) -> None:
    answer = await http.post(TEXT, json={"prompt": "x"} | fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in fields


WAYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"response_format": {"type": "json_object"}}, {"json_object": True}),
    ({"response_format": format_of(SCHEMA, strict=False)}, {"json": json.dumps(SCHEMA)}),
    ({"response_format": format_of(True)}, {"json": "true"}),
    ({"structured_outputs": {"json": SCHEMA}}, {"json": json.dumps(SCHEMA)}),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, {"json": json.dumps(SCHEMA)}),
    ({"structured_outputs": {"json": False}}, {"json": "false"}),
    ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
    ({"structured_outputs": {"choice": ["a", "b"]}}, {"choice": ["a", "b"]}),
    ({"structured_outputs": {"grammar": 'start: "a"'}}, {"grammar": 'start: "a"'}),
    ({"structured_outputs": {"json_object": True}}, {"json_object": True}),
    ({"structured_outputs": {"regex": "a", "json_object": False}}, {"regex": "a"}),
    (
        {"structured_outputs": {"json_object": True, "close_in_time": False}},
        {"json_object": True, "close_in_time": False},
    ),
    (
        {
            "response_format": {"type": "json_object"},
            "structured_outputs": {"disable_any_whitespace": True},
        },
        {"json_object": True, "disable_any_whitespace": True},
    ),
    ({"guided_json": SCHEMA}, {"json": json.dumps(SCHEMA)}),
    ({"guided_regex": "a+"}, {"regex": "a+"}),
    ({"guided_choice": ["a"]}, {"choice": ["a"]}),
    ({"guided_grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
    (
        {"guided_json": SCHEMA, "guided_whitespace_pattern": " ?"},
        {"json": json.dumps(SCHEMA), "whitespace_pattern": " ?"},
    ),
]


@pytest.mark.parametrize("route", [CHAT, TEXT])
@pytest.mark.parametrize(("fields", "params"), WAYS, ids=[str(f)[:70] for f, _ in WAYS])
async def test_every_way_reaches_the_engine(
    http: httpx.AsyncClient,
    engine: FakeEngine,
    route: str,
    fields: dict[str, Any],
    params: dict[str, Any],
) -> None:
    asked = {"messages": USER} if route == CHAT else {"prompt": "x"}
    answer = await http.post(route, json=asked | fields)
    assert answer.status_code == 200, answer.text
    assert engine.requests[0].params.structured_outputs == StructuredOutputsParams(**params)


@pytest.mark.parametrize("route", [CHAT, TEXT])
async def test_a_structural_tag_comes_whole(
    http: httpx.AsyncClient, engine: FakeEngine, route: str
) -> None:
    asked = {"messages": USER} if route == CHAT else {"prompt": "x"}
    tag = {"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}]}
    tag = {"type": "structural_tag", **tag}
    for fields in ({"response_format": tag}, {"structured_outputs": {"structural_tag": tag}}):
        answer = await http.post(route, json=asked | fields)
        assert answer.status_code == 200, answer.text
        params = engine.requests.pop().params.structured_outputs
        assert json.loads(params.structural_tag) == tag
