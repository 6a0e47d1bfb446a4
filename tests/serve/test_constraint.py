"""When an answer is held to a grammar, to which, and where its reasoning ends."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fake_engine import CHATML, REASONING_AND_CALLS, FakeEngine, byte_renderer
from fastapi import FastAPI
from shapes import ADD, CHAT, TEXT, USER, WEATHER, shaped_app, tool

from octavo.base.errors import RequestError
from octavo.base.settings import ServerSettings
from octavo.base.structured import Marker, StructuredOutputsParams, Thinking
from octavo.grammar.compile import compile_structure
from octavo.serve.app import build_app
from octavo.text.renderer import Renderer

NAMED = {"type": "function", "function": {"name": "add"}}
STRICT = tool("now", strict=True)
JSON = {"type": "json_object"}
THINK = Thinking(opens=Marker("<think>", 258), closes=Marker("</think>", 259), state="may")
HELD: list[tuple[dict[str, Any], str | None]] = [
    ({"tools": [ADD]}, None),
    ({"tools": [ADD], "tool_choice": "auto", "parallel_tool_calls": True}, None),
    ({"tools": [ADD], "tool_choice": "none"}, None),
    ({"tools": [ADD], "tool_choice": "none", "response_format": JSON}, "json_object"),
    ({"tools": [ADD, STRICT]}, "grammar"),
    ({"tools": [ADD], "parallel_tool_calls": False}, "grammar"),
    ({"tools": [ADD], "tool_choice": "required"}, "grammar"),
    ({"tools": [ADD], "tool_choice": NAMED}, "grammar"),
    ({"tools": [ADD], "response_format": JSON}, "grammar"),
    ({"tools": [ADD], "tool_choice": "required", "response_format": JSON}, "grammar"),
    ({"tool_choice": "none"}, None),
]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine("x", max_model_len=4096)


@pytest.fixture
def app(engine: FakeEngine) -> FastAPI:
    return shaped_app(engine)


async def held_to(
    http: httpx.AsyncClient, engine: FakeEngine, **fields: Any
) -> StructuredOutputsParams | None:
    answer = await http.post(CHAT, json={"messages": USER, **fields})
    assert answer.status_code == 200, answer.text
    params = engine.requests.pop().params
    if params.structured_outputs is not None:
        assert params.thinking == THINK
        compile_structure(params.structured_outputs, params.thinking, {}.get)
    return params.structured_outputs


async def refused(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post(CHAT, json={"messages": USER, **fields})
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


@pytest.mark.parametrize(("fields", "kind"), HELD, ids=[str(fields)[:80] for fields, _ in HELD])
async def test_when_there_is_a_grammar(
    http: httpx.AsyncClient, engine: FakeEngine, fields: dict[str, Any], kind: str | None
) -> None:
    shape = await held_to(http, engine, **fields)
    assert (shape and shape.kind) == kind


async def test_a_grammar_knows_only_what_may_be_called(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    tools = [ADD, WEATHER]
    one = await held_to(http, engine, tools=tools, tool_choice=NAMED)
    both = await held_to(http, engine, tools=tools, tool_choice="required")
    assert one is not None and "add" in one.grammar and "weather" not in one.grammar
    assert both is not None and "add" in both.grammar and "weather" in both.grammar


async def test_options_of_a_shape_hold_beside_tools(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    options = {"disable_any_whitespace": True, "close_in_time": False}
    fields = {"structured_outputs": {"json": schema, **options}}
    shape = await held_to(http, engine, tools=[ADD], **fields)
    assert shape is not None and '"answer"' in shape.grammar
    assert (shape.disable_any_whitespace, shape.close_in_time) == (True, False)


async def test_other_shapes_do_not_go_with_tools(http: httpx.AsyncClient) -> None:
    error = await refused(http, tools=[ADD], structured_outputs={"regex": "a"})
    assert error["param"] == "structured_outputs.regex"
    assert "JSON" in error["message"]


async def test_a_template_that_does_not_show_tools(engine: FakeEngine) -> None:
    async with client(engine, byte_renderer(CHATML)) as http:
        for fields in ({}, {"tool_choice": "required"}, {"tool_choice": NAMED}):
            error = await refused(http, tools=[ADD], **fields)
            assert error["param"] == "tools"
            assert "chat template does not show" in error["message"]
            assert "--chat-template" in error["message"]
        body = {"messages": USER, "tools": [ADD], "tool_choice": "none"}
        assert (await http.post(CHAT, json=body)).status_code == 200


async def test_calls_that_cannot_be_read(engine: FakeEngine) -> None:
    """The template writes arguments otherwise than they are, so that no format proves itself."""
    broken = REASONING_AND_CALLS.replace("arguments | tojson", "arguments | tojson | upper")
    async with client(engine, byte_renderer(broken)) as http:
        error = await refused(http, tools=[ADD])
        assert error["param"] == "tools" and len(error["message"]) > len("tools: ")
    assert engine.requests == []


async def test_reasoning_before_a_shape(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    for fields, state in (({}, "may"), (off, "closed"), ({"reasoning_effort": "none"}, "closed")):
        await http.post(CHAT, json={"messages": USER, "response_format": JSON, **fields})
        assert engine.requests.pop().params.thinking.state == state
    await http.post(CHAT, json={"messages": USER})
    assert engine.requests.pop().params.thinking is None


async def test_text_that_stands_between_other_parts(engine: FakeEngine) -> None:
    """In gpt-oss's format the shape is that of the final channel."""
    renderer = byte_renderer(CHATML)
    renderer = Renderer(renderer.tokenizer, renderer._template, tool_call_parser="openai")
    async with client(engine, renderer) as http:
        await http.post(CHAT, json={"messages": USER, "response_format": JSON})
        params = engine.requests.pop().params
        assert params.thinking is None and "final" in params.structured_outputs.grammar
        compile_structure(params.structured_outputs, None, {}.get)
        error = await refused(http, structured_outputs={"choice": ["a"]})
        assert error["param"] == "structured_outputs.choice"


async def test_a_budget_of_reasoning(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    for fields in ({}, {"response_format": JSON}):
        body = {"messages": USER, "thinking_token_budget": 5, **fields}
        assert (await http.post(CHAT, json=body)).status_code == 200
        assert engine.requests.pop().params.thinking.budget == 5


async def test_a_budget_where_nothing_reasons(engine: FakeEngine) -> None:
    renderer = byte_renderer(CHATML)
    renderer = Renderer(renderer.tokenizer, renderer._template, reasoning_parser="none")
    async with client(engine, renderer) as http:
        error = await refused(http, thinking_token_budget=5)
        assert error["param"] == "thinking_token_budget"


class Refusing:
    """In place of the service that compiles."""

    async def check(self, structure: StructuredOutputsParams, thinking: Thinking | None) -> None:
        assert structure.kind
        raise RequestError("regex: too much of it", "regex")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": JSON}, "response_format"),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
    ],
)
@pytest.mark.parametrize("route", [CHAT, TEXT, "/v1/fork"])
async def test_what_cannot_be_compiled_is_refused_by_the_clients_name(
    engine: FakeEngine, route: str, fields: dict[str, Any], param: str
) -> None:
    async with client(engine, byte_renderer(REASONING_AND_CALLS), Refusing()) as http:
        first = (await http.post(TEXT, json={"prompt": "x"})).json()["id"]
        body = {"messages": USER, "prompt": "x", "request_id": first}
        wanted = {CHAT: "messages", TEXT: "prompt"}.get(route, "request_id")
        for stream in (False, True):
            sent = {wanted: body[wanted], "stream": stream, **fields}
            answer = await http.post(route, json=sent)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == param
        assert len(engine.requests) == 1
        answer = await http.post(CHAT, json={"messages": USER, "tools": [STRICT]})
        assert answer.json()["error"]["param"] == "tools"


async def test_a_fork_has_its_own_shape(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    fields = {"structured_outputs": {"regex": "x+"}}
    first = (await http.post(TEXT, json={"prompt": "y", **fields})).json()
    assert first["choices"][0]["structured"] == {"complete": True, "closed_at": None}
    plain = (await http.post("/v1/fork", json={"request_id": first["id"]})).json()
    assert engine.requests.pop().params.structured_outputs is None
    assert "structured" not in plain["choices"][0]
    await http.post("/v1/fork", json={"request_id": first["id"], "guided_regex": "z"})
    assert engine.requests.pop().params.structured_outputs.regex == "z"


async def test_tokenize_shows_tools(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    body = {"messages": USER, "tools": [ADD]}
    await http.post(CHAT, json=body)
    tokens = (await http.post("/tokenize", json=body)).json()["tokens"]
    assert tokens == engine.requests[0].prompt_token_ids
    fewer = (await http.post("/tokenize", json={**body, "tool_choice": "none"})).json()
    assert fewer == (await http.post("/tokenize", json={"messages": USER})).json()


async def test_strict_is_not_shown_and_parameters_are(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    bare = {"type": "function", "function": {"name": "bare"}}
    await http.post(CHAT, json={"messages": USER, "tools": [STRICT, bare]})
    prompt = bytes(id for id in engine.requests[0].prompt_token_ids if id < 256).decode()
    assert "strict" not in prompt
    assert '{"type": "function", "function": {"name": "bare", "parameters": {"type": ' in prompt


def client(engine: FakeEngine, renderer: Renderer, structures: Any = None) -> httpx.AsyncClient:
    app = build_app(engine, renderer, ServerSettings(), structures=structures)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://octavo")
