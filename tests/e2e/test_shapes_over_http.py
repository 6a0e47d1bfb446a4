"""Structured answers and calls through a real engine: what the model would say, and what it may."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel
from scripted_server import scripted_server

USER = [{"role": "user", "content": "hi"}]
SAID = '{"name": "Ann", "age": 41}'


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


TOOL = openai.pydantic_function_tool(Person)
CALL = f'<tool_call>\n{{"name": "Person", "arguments": {SAID}}}\n</tool_call>'
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "person", "schema": TOOL["function"]["parameters"]},
}


@pytest.fixture
async def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    async with scripted_server(tmp_path, monkeypatch) as url:
        yield url


class Asker:
    """Sends requests by the official SDK; the model says `text` as far as it may."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.sdk = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)

    async def fields(self, text: str, **more: Any) -> dict[str, Any]:
        body = {"prompt": f"{text}<|im_end|>", "add_special_tokens": False}
        async with httpx.AsyncClient() as http:
            ids = (await http.post(f"{self._url}/tokenize", json=body)).json()["tokens"]
        script = {"logits_processors": ["script"], "extra_args": {"script": ids}}
        asked = {"model": "tiny", "messages": USER, "max_tokens": 400}
        return {**asked, **more, "extra_body": script}

    async def choice(self, text: str, **more: Any) -> Any:
        answer = await self.sdk.chat.completions.create(**await self.fields(text, **more))
        return answer.choices[0]


async def test_over_http(url: str) -> None:
    """One server, as starting it is what takes time."""
    ask = Asker(url)
    async with ask.sdk:
        await parsed(ask)
        await called(ask)
        await held_against_its_will(ask)
        await refused(ask)


async def parsed(ask: Asker) -> None:
    fields = await ask.fields(SAID)
    answer = await ask.sdk.chat.completions.parse(**fields, response_format=Person)
    assert answer.choices[0].message.parsed == Person(name="Ann", age=41)
    async with ask.sdk.chat.completions.stream(**fields, response_format=Person) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.parsed == Person(name="Ann", age=41)


async def called(ask: Asker) -> None:
    for fields in ({"tool_choice": "required"}, {"tool_choice": "auto"}, {"response_format": FORM}):
        choice = await ask.choice(CALL, tools=[TOOL], **fields)
        [call] = choice.message.tool_calls
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None), fields
        assert (call.function.name, call.function.arguments) == ("Person", SAID)
    fields = await ask.fields(f"Well.\n{CALL}", tools=[TOOL])
    async with ask.sdk.chat.completions.stream(**fields) as stream:
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert message.content == "Well."
    assert message.tool_calls[0].function.parsed_arguments == Person(name="Ann", age=41)


async def held_against_its_will(ask: Asker) -> None:
    """What it would say is no call, or no answer of the shape."""
    choice = await ask.choice("I will not.", tools=[TOOL], tool_choice="required")
    for call in choice.message.tool_calls:
        Person.model_validate_json(call.function.arguments)
    other = {"type": "function", "function": {"name": "nothing"}}
    named = {"type": "function", "function": {"name": "nothing"}}
    choice = await ask.choice(CALL, tools=[TOOL, other], tool_choice=named)
    assert (choice.finish_reason, choice.structured["complete"]) == ("stop", True)
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("nothing", {})
    choice = await ask.choice(SAID.replace("41", "x"), response_format=FORM, max_tokens=48)
    Person.model_validate_json(choice.message.content)
    assert choice.structured["complete"]


async def refused(ask: Asker) -> None:
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}
    with pytest.raises(openai.BadRequestError, match="thing") as error:
        await ask.choice(SAID, response_format=bad)
    assert error.value.param == "response_format"
