"""The official SDK's helpers for structured answers and tools."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import openai
import pytest
from fake_engine import FakeEngine
from fastapi import FastAPI
from pydantic import BaseModel
from shapes import USER, shaped_app


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    days: int


ARGUMENTS = '{"city": "Paris", "days": 3}'
CALL = f'<tool_call>\n{{"name": "Weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
THOUGHT = "<think>\nHm.\n</think>\n\n"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(ARGUMENTS, per_delta=5, max_model_len=4096)


@pytest.fixture
def app(engine: FakeEngine) -> FastAPI:
    return shaped_app(engine)


@pytest.fixture
async def sdk(app: FastAPI) -> AsyncIterator[openai.AsyncOpenAI]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with openai.AsyncOpenAI(
        base_url="http://octavo/v1",
        api_key="none",
        max_retries=0,
        http_client=httpx.AsyncClient(transport=transport),
        _strict_response_validation=True,
    ) as client:
        yield client


async def test_parse(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    answer = await sdk.chat.completions.parse(model="tiny", messages=USER, response_format=Weather)
    message = answer.choices[0].message
    assert message.parsed == Weather(city="Paris", days=3)
    assert answer.choices[0].structured == {"complete": True, "closed_at": None}
    shape = engine.requests[0].params.structured_outputs
    assert shape is not None and shape.kind == "json"


async def test_parse_tools(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    """A pydantic function tool is strict: calls are held to it, and may be left alone."""
    engine.says = f"{THOUGHT}{CALL}"
    answer = await sdk.chat.completions.parse(
        model="tiny", messages=USER, tools=[openai.pydantic_function_tool(Weather)]
    )
    [choice] = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls[0].function.parsed_arguments == Weather(city="Paris", days=3)
    assert choice.message.reasoning == choice.message.reasoning_content == "Hm."
    assert answer.usage.completion_tokens_details.reasoning_tokens == len("\nHm.\n")
    shape = engine.requests[0].params.structured_outputs
    assert shape is not None and shape.kind == "grammar"


async def test_stream_structured(sdk: openai.AsyncOpenAI) -> None:
    async with sdk.chat.completions.stream(
        model="tiny", messages=USER, response_format=Weather
    ) as stream:
        kinds = [event.type async for event in stream]
    assert kinds.count("content.delta") > 3
    assert "content.done" in kinds
    final = (await stream.get_final_completion()).choices[0]
    assert final.message.parsed == Weather(city="Paris", days=3)


async def test_stream_tools(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    engine.says = f"{THOUGHT}Let me see.\n{CALL}\n{CALL}"
    async with sdk.chat.completions.stream(
        model="tiny", messages=USER, tools=[openai.pydantic_function_tool(Weather)]
    ) as stream:
        events = [event async for event in stream]
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [(event.name, event.index, event.parsed_arguments) for event in done] == [
        ("Weather", index, Weather(city="Paris", days=3)) for index in (0, 1)
    ]
    final = (await stream.get_final_completion()).choices[0]
    assert final.message.content == "Let me see."
    assert final.finish_reason == "tool_calls"
    assert len({call.id for call in final.message.tool_calls}) == 2


async def test_a_conversation_with_calls(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    """What the SDK gave is sent back as it is, and the template shows it."""
    engine.says = CALL
    tools = [openai.pydantic_function_tool(Weather)]
    first = await sdk.chat.completions.create(
        model="tiny", messages=USER, tools=tools, tool_choice="required"
    )
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    engine.says = "Sunny."
    await sdk.chat.completions.create(model="tiny", messages=[*USER, message, result], tools=tools)
    prompt = bytes(id for id in engine.requests[1].prompt_token_ids if id < 256).decode()
    assert f'{{"name": "Weather", "arguments": {ARGUMENTS}}}' in prompt
    assert "tool\nsunny" in prompt
