"""LangChain: structured output both ways, and bound tools, whole and in parts."""

from __future__ import annotations

import json
from typing import Any

from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from scripted import ASK, MODEL, URL, USER, User, call, says

ADD = call("add", '{"a": 2, "b": 3}')


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def model(text: str) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL,
        base_url=f"{URL}/v1",
        api_key=SecretStr("none"),
        max_retries=0,
        extra_body=says(text),
    )


def structured(method: str, text: str) -> dict[str, Any]:
    bound = model(text).with_structured_output(User, method=method)
    *_, last = bound.stream(ASK)
    return {"whole": bound.invoke(ASK).model_dump(), "last": last.model_dump()}


def called(text: str, **options: Any) -> dict[str, Any]:
    bound = model(text).bind_tools([add], **options)
    whole = bound.invoke(ASK)
    joined, *rest = bound.stream(ASK)
    for chunk in rest:
        joined += chunk
    return {
        "whole": [(one["name"], one["args"]) for one in whole.tool_calls],
        "streamed": [(one["name"], one["args"]) for one in joined.tool_calls],
        "finish_reason": whole.response_metadata["finish_reason"],
        "content": whole.content,
    }


print(
    json.dumps(
        {
            "json_schema": structured("json_schema", USER),
            "function_calling": structured("function_calling", call("User")),
            "json_mode": structured("json_mode", USER),
            "auto": called(ADD),
            "any": called(ADD, tool_choice="any"),
            "named": called(ADD, tool_choice="add"),
            "strict": called(ADD, strict=True),
            "two": called(f"{ADD}\n{ADD}", parallel_tool_calls=True),
            "none": called("It is 5."),
        }
    )
)
