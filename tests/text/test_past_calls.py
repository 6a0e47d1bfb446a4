"""Calls of earlier turns reach a template in the form that it writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.text.chat_template import ChatTemplate

WANTS_OBJECTS = """{% for m in messages %}{{ m.role }}:{{ m.content }}
{%- for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %};
{%- endfor %}"""
WANTS_ITEMS = """{% for m in messages %}{{ m.role }}:{{ m.content }}
{%- for call in m.tool_calls or [] -%}
{%- for k, v in call.function.arguments.items() %}{{ k }}={{ v | tojson }}{% endfor %}
{%- endfor %};{% endfor %}"""
WANTS_TEXT = """{% for m in messages %}
{%- if m.tool_calls -%}
{{ m.role + ':' + m.tool_calls[0].function.arguments }}
{%- else %}{{ m.role + ':' + m.content }}{% endif %};{% endfor %}"""
WANTS_NULL = """{% for m in messages %}
{%- if m['role'] == 'assistant' and m['content'] is none -%}
{{ 'assistant:' + m['tool_calls'][0]['function']['arguments'] }}
{%- else %}{{ m.role }}:{{ m['content'] }}{% endif %};{% endfor %}"""
NO_CALLS = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"


def chat(arguments: Any, **fields: Any) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    asked = {"role": "user", "content": "go"}
    return [asked, {"role": "assistant", **fields, "tool_calls": [call]}]


@pytest.mark.parametrize("arguments", ['{"a": "é"}', {"a": "é"}])
@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (WANTS_OBJECTS, 'user:go;assistant:{"a": "é"};'),
        (WANTS_ITEMS, 'user:go;assistant:a="é";'),
        (WANTS_TEXT, 'user:go;assistant:{"a": "é"};'),
        (WANTS_NULL, 'user:go;assistant:{"a": "é"};'),
        (NO_CALLS, "user:go;assistant:;"),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"content": None}])
def test_in_the_form_that_is_shown(
    source: str, shown: str, arguments: Any, fields: dict[str, Any]
) -> None:
    template = ChatTemplate(source, {})
    assert template.render(chat(arguments, **fields), add_generation_prompt=False) == shown


@pytest.mark.parametrize("arguments", [None, "", "{}", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    for source in (WANTS_OBJECTS, WANTS_TEXT):
        text = ChatTemplate(source, {}).render(chat(arguments), add_generation_prompt=False)
        assert text.endswith("assistant:{};")


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "7", "[" * 100_000])
def test_what_is_no_object_stays_as_it_is(arguments: str) -> None:
    text = ChatTemplate(WANTS_OBJECTS, {}).render(chat(arguments), add_generation_prompt=False)
    assert text == f"user:go;assistant:{json.dumps(arguments)};"


@pytest.mark.parametrize("calls", [None, [], "no list", [7], [{"function": "f"}], [{"id": "x"}]])
def test_odd_calls_do_no_harm(calls: Any) -> None:
    message = {"role": "assistant", "content": "x", "tool_calls": calls}
    ChatTemplate(NO_CALLS, {}).render([{"role": "user", "content": "go"}, message])
