"""The chunks of a stream, merged as clients do, are the answer that is not streamed.

For every way of cutting an answer's tokens in two, for pieces of every length, and at random.
"""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import httpx
import msgspec
import pytest
from fake_engine import FakeEngine, spelled
from fastapi import FastAPI
from shapes import ADD, CHAT, USER, WEATHER, shaped_app, tool

TOOLS = [WEATHER, ADD, tool("now")]
NAMED = {"type": "function", "function": {"name": "add"}}
ARGUMENTS = '{"a": 1, "b": [2, {"c": "}\\n\\u00e9"}]}'
CALL = f'<tool_call>\n{{"name": "add", "arguments": {ARGUMENTS}}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nHm, <tool_call> é?\n</think>\n\n"
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("Paris, naïve 👩‍👧.", {}),
    "reasoning": (f"{THOUGHT}Paris.", {}),
    "hidden": (f"{THOUGHT}Paris.", {"include_reasoning": False}),
    "unclosed": ("<think>\nHm", {}),
    "cut": (f"{THOUGHT}Paris.", {"max_tokens": 8}),
    "call": (f"Let me see.\n{CALL}", {"tools": TOOLS}),
    "calls": (f"{THOUGHT}{CALL}\n{NOW}\n{CALL}", {"tools": TOOLS}),
    "required": (CALL, {"tools": TOOLS, "tool_choice": "required"}),
    "named": (CALL, {"tools": TOOLS, "tool_choice": NAMED}),
    "cut call": (CALL, {"tools": TOOLS, "max_tokens": 45}),
    "unknown tool": (
        '<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call>',
        {"tools": TOOLS},
    ),
    "no tools": (CALL, {}),
    "none": (CALL, {"tools": TOOLS, "tool_choice": "none"}),
    "broken": ('<tool_call>\n{"name": "add", "argu', {"tools": TOOLS}),
    "structured": ('{"a": 1}', {"response_format": {"type": "json_object"}}),
    "stopped": (f"{THOUGHT}Paris. Rome.", {"stop": [". R"]}),
}


class CutEngine(FakeEngine):
    """Gives deltas that end where `cuts` says."""

    cuts: tuple[int, ...] = ()

    def _answer(self, request: Any, child: int) -> list[Any]:
        ones = super()._answer(request, child)
        bounds = [0, *(cut for cut in self.cuts if cut < len(ones)), len(ones)]
        return [joined(ones[a:b]) for a, b in pairwise(bounds) if a < b]


def joined(deltas: list[Any]) -> Any:
    ids = [id for delta in deltas for id in delta.token_ids]
    return msgspec.structs.replace(deltas[-1], token_ids=ids)


@pytest.fixture
def engine() -> CutEngine:
    return CutEngine(max_model_len=4096)


@pytest.fixture
def app(engine: FakeEngine) -> FastAPI:
    return shaped_app(engine)


def merged(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """A choice, as clients put it together."""
    message: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {"message": message, "token_ids": []}
    finishes = 0
    for chunk in chunks:
        [choice] = chunk["choices"]
        for name, value in choice["delta"].items():
            if name == "tool_calls":
                for piece in value:
                    add_call(calls, piece)
            else:
                message[name] = message.get(name, "") + value
        whole["token_ids"] += choice.get("token_ids", [])
        finishes += choice["finish_reason"] is not None
        whole |= {
            k: choice[k] for k in ("finish_reason", "stop_reason", "structured") if k in choice
        }
    assert finishes == 1
    assert not chunks[-1]["choices"][0]["delta"]
    if calls:
        message["tool_calls"] = [calls[i] for i in sorted(calls)]
    return whole


def add_call(calls: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    index = piece.pop("index")
    if index not in calls:
        assert piece["id"] and piece["type"] == "function" and piece["function"]["name"]
        calls[index] = piece
    else:
        assert set(piece) == {"function"} and set(piece["function"]) == {"arguments"}
        calls[index]["function"]["arguments"] += piece["function"]["arguments"]


def comparable(choice: dict[str, Any]) -> dict[str, Any]:
    """Without ids, which are random, and with one form of what says nothing."""
    message = {k: v for k, v in choice["message"].items() if v}
    for call in message.get("tool_calls", []):
        assert call.pop("id").startswith("call_")
        call["arguments"] = call["function"]["arguments"]
    kept = {k: choice[k] for k in ("finish_reason", "token_ids", "structured") if k in choice}
    return kept | {"message": message, "stop_reason": choice.get("stop_reason")}


async def answers(
    http: httpx.AsyncClient, engine: CutEngine, name: str, cuts: tuple[int, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Whole and streamed; the latter in pieces."""
    engine.says, fields = ANSWERS[name]
    body = {"messages": USER, "return_token_ids": True, **fields}
    engine.cuts = ()
    whole = (await http.post(CHAT, json=body)).json()["choices"][0]
    engine.cuts = cuts
    streamed = await http.post(CHAT, json=body | {"stream": True})
    events = streamed.text.removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    return comparable(whole), comparable(merged(chunks))


def ways(name: str) -> list[tuple[int, ...]]:
    size = len(spelled(ANSWERS[name][0])) + 1
    draw = random.Random(size)
    twos = [(cut,) for cut in range(1, size)]
    evens = [tuple(range(step, size, step)) for step in range(1, 9)]
    odd = [tuple(sorted(draw.sample(range(1, size), min(5, size - 1)))) for _ in range(10)]
    return twos + evens + odd


@pytest.mark.parametrize("name", ANSWERS)
async def test_however_it_is_cut(http: httpx.AsyncClient, engine: CutEngine, name: str) -> None:
    for cuts in ways(name):
        whole, streamed = await answers(http, engine, name, cuts)
        assert streamed == whole, cuts


EXPECTED: dict[str, dict[str, Any]] = {
    "text": {"content": "Paris, naïve 👩‍👧."},
    "reasoning": {"content": "Paris.", "reasoning": "Hm, <tool_call> é?"},
    "hidden": {"content": "Paris."},
    "unclosed": {"content": None, "reasoning": "Hm"},
    "unknown tool": {"content": ANSWERS["unknown tool"][0]},
    "no tools": {"content": CALL},
    "none": {"content": CALL},
    "broken": {"content": ANSWERS["broken"][0]},
    "structured": {"content": '{"a": 1}'},
    "stopped": {"content": "Paris", "reasoning": "Hm, <tool_call> é?"},
}


@pytest.mark.parametrize("name", EXPECTED)
async def test_what_is_said(http: httpx.AsyncClient, engine: FakeEngine, name: str) -> None:
    engine.says, fields = ANSWERS[name]
    answer = (await http.post(CHAT, json={"messages": USER, **fields})).json()
    expected = {"role": "assistant", "refusal": None, **EXPECTED[name]}
    if "reasoning" in expected:
        expected["reasoning_content"] = expected["reasoning"]
    assert answer["choices"][0]["message"] == expected


@pytest.mark.parametrize("name", ["call", "calls", "required", "named", "cut call"])
async def test_calls_that_are_made(http: httpx.AsyncClient, engine: FakeEngine, name: str) -> None:
    engine.says, fields = ANSWERS[name]
    choice = (await http.post(CHAT, json={"messages": USER, **fields})).json()["choices"][0]
    calls = choice["message"]["tool_calls"]
    assert {call["type"] for call in calls} == {"function"}
    assert len({call["id"] for call in calls}) == len(calls)
    made = [call["function"]["name"] for call in calls]
    assert made == {"calls": ["add", "now", "add"]}.get(name, ["add"])
    reasons = {"named": "stop", "cut call": "length"}
    assert choice["finish_reason"] == reasons.get(name, "tool_calls")
    content = {"call": "Let me see."}.get(name)
    assert choice["message"]["content"] == content
    if name != "cut call":
        assert json.loads(calls[0]["function"]["arguments"]) == {"a": 1, "b": [2, {"c": "}\né"}]}
