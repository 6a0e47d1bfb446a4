"""What is wrong with a request is said in one line, with a 4xx, and harms nothing."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest
from fake_engine import MAX_MODEL_LEN, VOCAB_SIZE, FakeEngine, byte_renderer
from fastapi import FastAPI

from octavo.base.settings import ServerSettings
from octavo.serve.app import build_app

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


async def assert_refused(
    http: httpx.AsyncClient, engine: FakeEngine, answer: httpx.Response, status: int
) -> dict[str, Any]:
    """The error object, after checking that the server still works and the engine saw nothing."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and "\n" not in error["message"]
    assert len(answer.content) < 1000
    assert engine.requests == []
    good = await http.post(CHAT, json={"messages": USER})
    assert good.json()["choices"][0]["message"]["content"] == "Paris."
    return error


FIELDS: list[tuple[str, dict[str, Any], str]] = [
    (TEXT, {"prompt": [VOCAB_SIZE]}, "prompt"),
    (TEXT, {"prompt": [-1]}, "prompt"),
    (TEXT, {"prompt": [2**80]}, "prompt"),
    (TEXT, {"prompt": [True]}, "prompt"),
    (TEXT, {"prompt": ""}, "prompt"),
    (TEXT, {"prompt": []}, "prompt"),
    (TEXT, {"prompt": [[]]}, "prompt"),
    (TEXT, {"prompt": ["ok", ""]}, "prompt"),
    (TEXT, {"prompt": ["a", 1]}, "prompt"),
    (TEXT, {"prompt": ["a"] * 1025}, "prompt"),
    (TEXT, {"prompt": None}, "prompt"),
    (TEXT, {}, "prompt"),
    (TEXT, {"prompt": "x" * MAX_MODEL_LEN}, "prompt"),
    (TEXT, {"prompt": "x", "logprobs": 21}, "logprobs"),
    (TEXT, {"prompt": "x", "echo": "loud"}, "echo"),
    (TEXT, {"prompt": "x", "max_tokens": 0}, "max_tokens"),
    (TEXT, {"prompt": "x", "max_tokens": 0, "logprobs": 1}, "max_tokens"),
    (TEXT, {"prompt": "xyz", "echo": True, "prompt_logprob_start": 1}, "prompt_logprob_start"),
    (TEXT, {"prompt": "x", "echo": True, "logprobs": 21}, "logprobs"),
    (
        TEXT,
        {"prompt": "x", "prompt_logprobs": 1, "prompt_logprob_start": 2},
        "prompt_logprob_start",
    ),
    (TEXT, {"prompt": "x", "prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    (TEXT, {"prompt": "x", "suffix": "y"}, "suffix"),
    (TEXT, {"prompt": "x", "best_of": 2}, "best_of"),
    (TEXT, {"prompt": "x", "best_of": 2, "n": 3}, "best_of"),
    (TEXT, {"prompt": ["x", "y"], "cache_explain": True}, "cache_explain"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hi"}, "messages"),
    (CHAT, {"messages": [{"content": "hi"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", "content": "x" * MAX_MODEL_LEN}]}, "prompt"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages",
    ),
    (CHAT, {"top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": "many"}, "top_logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
    (
        CHAT,
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
    ),
    (CHAT, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    (CHAT, {"chat_template_kwargs": {"add_special_tokens": True}}, "chat_template_kwargs"),
    (CHAT, {"chat_template": "{{ 1 }}"}, "chat_template"),
    (CHAT, {"n": 0}, "n"),
    (CHAT, {"n": 129}, "n"),
    (CHAT, {"n": 2, "best_of": 1}, "best_of"),
    (CHAT, {"n": 9, "use_beam_search": True}, "n"),
    (CHAT, {"use_beam_search": True, "stop": "x"}, "stop"),
    (CHAT, {"use_beam_search": True, "presence_penalty": 1}, "presence_penalty"),
    (CHAT, {"use_beam_search": "4"}, "use_beam_search"),
    (CHAT, {"length_penalty": 101}, "length_penalty"),
    (CHAT, {"early_stopping": "always"}, "early_stopping"),
    (CHAT, {"cache_explain": True, "stream": True}, "cache_explain"),
    (CHAT, {"audio": {"voice": "alloy"}}, "audio"),
    (CHAT, {"echo": True}, "echo"),
    (CHAT, {"prompt_logprobs": 21}, "prompt_logprobs"),
    (CHAT, {"prompt_logprobs": -1}, "prompt_logprobs"),
    (CHAT, {"prompt_logprobs": -2}, "prompt_logprobs"),
    (CHAT, {"prompt_logprobs": "all"}, "prompt_logprobs"),
    (CHAT, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    (CHAT, {"logprob_token_ids": [VOCAB_SIZE]}, "logprob_token_ids"),
    (CHAT, {"logprob_token_ids": [1] * 129}, "logprob_token_ids"),
    (CHAT, {"logprob_token_ids": 5}, "logprob_token_ids"),
    (CHAT, {"logprobs_mode": "raw_logits"}, "logprobs_mode"),
    (CHAT, {"allowed_token_ids": []}, "allowed_token_ids"),
    (CHAT, {"allowed_token_ids": [VOCAB_SIZE]}, "allowed_token_ids"),
    (CHAT, {"allowed_token_ids": "all"}, "allowed_token_ids"),
    (CHAT, {"bad_words": [""]}, "bad_words[0]"),
    (CHAT, {"bad_words": "x"}, "bad_words"),
    (CHAT, {"bad_words": ["x"] * 1025}, "bad_words"),
    (CHAT, {"bad_words": ["\ud800"]}, "bad_words[0]"),
    (CHAT, {"logits_processors": ["absent"]}, "logits_processors"),
    (CHAT, {"logits_processors": ["x"] * 9}, "logits_processors"),
    (CHAT, {"logits_processors": {"x": 1}}, "logits_processors"),
    (CHAT, {"extra_args": [1]}, "extra_args"),
    (CHAT, {"extra_args": {"a": {"b": 1}}}, "extra_args.a"),
    (CHAT, {"vllm_xargs": {"a": 2**64}}, "vllm_xargs.a"),
    (CHAT, {"extra_args": {str(i): i for i in range(65)}}, "extra_args"),
    (CHAT, {"repetition_detection": True}, "repetition_detection"),
    (CHAT, {"repetition_detection": {}}, "repetition_detection.max_pattern_size"),
    (
        CHAT,
        {"repetition_detection": {"max_pattern_size": 2, "min_pattern_size": 3}},
        "repetition_detection.min_pattern_size",
    ),
    (
        CHAT,
        {"repetition_detection": {"max_pattern_size": 2, "min_count": 1}},
        "repetition_detection.min_count",
    ),
    (CHAT, {"stream_interval": 0}, "stream_interval"),
    (CHAT, {"stream_interval": 2**40}, "stream_interval"),
    (CHAT, {"skip_reading_prefix_cache": "maybe"}, "skip_reading_prefix_cache"),
    (CHAT, {"spaces_between_special_tokens": 7}, "spaces_between_special_tokens"),
    (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
    (CHAT, {"max_tokens": -1}, "max_tokens"),
    (CHAT, {"max_tokens": 1.5}, "max_tokens"),
    (CHAT, {"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
    (CHAT, {"temperature": -0.1}, "temperature"),
    (CHAT, {"temperature": 1e308}, "temperature"),
    (CHAT, {"temperature": float("nan")}, "temperature"),
    (CHAT, {"temperature": float("inf")}, "temperature"),
    (CHAT, {"temperature": "warm"}, "temperature"),
    (CHAT, {"top_p": 0}, "top_p"),
    (CHAT, {"top_k": -2}, "top_k"),
    (CHAT, {"min_p": 1.1}, "min_p"),
    (CHAT, {"presence_penalty": 3}, "presence_penalty"),
    (CHAT, {"frequency_penalty": float("nan")}, "frequency_penalty"),
    (CHAT, {"repetition_penalty": 0}, "repetition_penalty"),
    (CHAT, {"seed": 2**63}, "seed"),
    (CHAT, {"stop": [""]}, "stop"),
    (CHAT, {"stop": ["x"] * 17}, "stop"),
    (CHAT, {"stop": {"a": 1}}, "stop"),
    (CHAT, {"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids"),
    (CHAT, {"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    (CHAT, {"logit_bias": {str(VOCAB_SIZE): 1}}, "logit_bias"),
    (CHAT, {"logit_bias": {"1": 101}}, "logit_bias.1"),
    (CHAT, {"cache_salt": ""}, "cache_salt"),
    (CHAT, {"stop_token_ids": [1] * 1025}, "stop_token_ids"),
    (CHAT, {"cache_salt": "x" * 129}, "cache_salt"),
    (CHAT, {"priority": 2**31}, "priority"),
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": "x", "messages": USER}, "prompt"),
    ("/detokenize", {"tokens": [VOCAB_SIZE]}, "tokens"),
    ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
]


@pytest.mark.parametrize(
    ("route", "fields", "param"), FIELDS, ids=[str(f[1:])[:60] for f in FIELDS]
)
async def test_a_bad_field_is_named(
    http: httpx.AsyncClient, engine: FakeEngine, route: str, fields: dict[str, Any], param: str
) -> None:
    body = {"messages": USER} | fields if route == CHAT else fields
    answer = await http.post(
        route, content=json.dumps(body), headers={"content-type": "application/json"}
    )
    error = await assert_refused(http, engine, answer, 400)
    assert error["param"] == param, error
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("route", [CHAT, TEXT, "/tokenize", "/detokenize"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"max_tokens": ' + b"9" * 9000 + b"}",
    ],
    ids=["empty", "cut", "list", "string", "bytes", "deep", "huge number"],
)
async def test_what_is_not_a_json_object(
    http: httpx.AsyncClient, engine: FakeEngine, route: str, content: bytes
) -> None:
    answer = await http.post(route, content=content, headers={"content-type": "application/json"})
    await assert_refused(http, engine, answer, 400)


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_only_plain_json_is_read(
    http: httpx.AsyncClient, engine: FakeEngine, headers: dict[str, str]
) -> None:
    answer = await http.post(CHAT, content=json.dumps({"messages": USER}), headers=headers)
    await assert_refused(http, engine, answer, 415)


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}]}),
        (TEXT, {"prompt": "\ud800"}),
        (TEXT, {"prompt": "\ud800" * 5000}),
        (TEXT, {"prompt": "x", "stop": "\ud800"}),
        (TEXT, {"prompt": "x", "cache_salt": "\ud800", "stream": True}),
        ("/tokenize", {"prompt": "\udc00"}),
    ],
)
async def test_half_a_surrogate_pair_is_no_text(
    http: httpx.AsyncClient, engine: FakeEngine, route: str, fields: dict[str, Any]
) -> None:
    headers = {"content-type": "application/json"}
    answer = await http.post(route, content=json.dumps(fields), headers=headers)
    await assert_refused(http, engine, answer, 400)


@pytest.mark.parametrize("text", ["\0", "\u2028", "🎉"])
async def test_odd_text_is_text(http: httpx.AsyncClient, text: str) -> None:
    answer = await http.post(TEXT, json={"prompt": text})
    assert answer.status_code == 200


async def test_a_content_type_may_name_its_charset(http: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    answer = await http.post(CHAT, content=json.dumps({"messages": USER}), headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit(
    http: httpx.AsyncClient, engine: FakeEngine, declared: bool
) -> None:
    async def parts() -> Any:
        for _ in range(200):
            yield b" " * 1000

    body = b" " * 200_000 if declared else parts()
    answer = await http.post(CHAT, content=body, headers={"content-type": "application/json"})
    error = await assert_refused(http, engine, answer, 413)
    assert "100000 bytes" in error["message"]


@pytest.mark.parametrize("route", [CHAT, TEXT, "/tokenize", "/detokenize"])
async def test_another_model(http: httpx.AsyncClient, engine: FakeEngine, route: str) -> None:
    body = {"model": "gpt-9", "messages": USER}
    if route in (TEXT, "/detokenize"):
        body = {"model": "gpt-9", "prompt": "x", "tokens": [1]}
    error = await assert_refused(http, engine, await http.post(route, json=body), 404)
    assert error["param"] == "model"
    assert "'tiny'" in error["message"]


async def test_unknown_routes_and_methods(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    await assert_refused(http, engine, await http.get("/v2/chat"), 404)
    engine.requests.clear()
    await assert_refused(http, engine, await http.get("/v1/models/other"), 404)
    engine.requests.clear()
    answer = await http.get(CHAT)
    await assert_refused(http, engine, answer, 405)
    assert answer.headers["allow"] == "POST"


async def test_unknown_fields_are_logged_once_each(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"include_usage": True, "include_dessert": True}
    body = {"messages": USER, "frobnicate": 1, "n": 1, "user": "me", "metadata": {"a": "b"}}
    body |= {"stream": True, "stream_options": options}
    body["repetition_detection"] = {"max_pattern_size": 3, "patience": 4}
    with caplog.at_level(logging.WARNING, logger="octavo"):
        for _ in range(3):
            assert (await http.post(CHAT, json=body)).status_code == 200
    assert [r.getMessage() for r in caplog.records] == [
        f"field '{name}' is unknown and has no effect"
        for name in ("include_dessert", "patience", "frobnicate")
    ]


async def test_fields_that_ask_for_nothing_are_taken(http: httpx.AsyncClient) -> None:
    idle = {"n": 1, "tools": None, "tool_choice": "none", "response_format": {"type": "text"}}
    idle |= {"best_of": None, "use_beam_search": False, "cache_explain": None}
    answer = await http.post(CHAT, json={"messages": USER, "store": False, "echo": False, **idle})
    assert answer.status_code == 200, answer.text


async def test_a_model_without_a_template_says_so(engine: FakeEngine) -> None:
    app: FastAPI = build_app(engine, byte_renderer(template=None), ServerSettings())  # type: ignore[arg-type]
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://octavo"
    ) as http:
        answer = await http.post(CHAT, json={"messages": USER})
        assert answer.status_code == 400
        assert "--chat-template" in answer.json()["error"]["message"]
        assert (await http.post(TEXT, json={"prompt": "x"})).status_code == 200
