"""The routes beside completions, and what requests to the engine are made of."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
from fake_engine import EOS, FakeEngine, byte_renderer, engine_info
from fastapi import FastAPI
from fastapi.openapi.models import OpenAPI

from octavo.base.repetition import RepetitionDetection
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import ServerSettings
from octavo.serve.app import build_app
from octavo.serve.models import ServedModel

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://octavo")


async def test_health_follows_the_engine(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    assert (await http.get("/health")).json() == {"status": "ok"}
    engine.dead = "signal 9"
    answer = await http.get("/health")
    assert answer.status_code == 503
    assert "signal 9" in answer.json()["error"]["message"]


async def test_tokenize_and_back(http: httpx.AsyncClient) -> None:
    answer = await http.post("/tokenize", json={"prompt": "né", "return_token_strs": True})
    assert answer.json() == {
        "count": 3,
        "max_model_len": 512,
        "tokens": [110, 195, 169],
        "token_strs": ["n", "\\xc3", "\\xa9"],
    }
    back = await http.post("/detokenize", json={"tokens": [256, 110, 195, 169, EOS]})
    assert back.json() == {"prompt": "<|im_start|>né<|im_end|>"}


async def test_tokenize_messages_as_chat_does(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}], "name": None}]
    for messages in (USER, parts):
        await http.post(CHAT, json={"messages": messages})
        tokens = (await http.post("/tokenize", json={"messages": messages})).json()["tokens"]
        assert tokens == engine.requests[-1].prompt_token_ids
    assert engine.requests[0].prompt_token_ids == engine.requests[1].prompt_token_ids


async def test_a_final_message_can_be_continued(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    messages = [*USER, {"role": "assistant", "content": "The capital is"}]
    await http.post(CHAT, json={"messages": messages, "continue_final_message": True})
    assert bytes(engine.requests[0].prompt_token_ids[-14:]) == b"The capital is"


async def test_request_ids(http: httpx.AsyncClient) -> None:
    body = {"messages": USER}
    answer = await http.post(CHAT, json=body)
    assert answer.headers["x-request-id"] == answer.json()["id"]
    for route, status in ((CHAT, 200), ("/nowhere", 404)):
        answer = await http.post(route, json=body, headers={"x-request-id": "mine-1"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (status, "mine-1")
    answer = await http.post(CHAT, content=b"x", headers={"x-request-id": "y" * 999})
    assert (answer.status_code, len(answer.headers["x-request-id"])) == (415, 256)


@pytest.mark.parametrize("name", [None, "tiny", "./models/tiny"])
async def test_a_model_may_be_called_by_any_of_its_names(
    http: httpx.AsyncClient, name: str | None
) -> None:
    answer = await http.post(CHAT, json={"model": name, "messages": USER})
    assert answer.json()["model"] == "tiny"


async def test_the_served_name_wins() -> None:
    settings = ServerSettings(served_model_name="gpt-4o")
    async with client(build_app(FakeEngine(), byte_renderer(), settings)) as http:
        assert (await http.get("/v1/models")).json()["data"][0]["id"] == "gpt-4o"
        assert (await http.post(TEXT, json={"model": "tiny", "prompt": "x"})).status_code == 404


def test_the_fingerprint_is_of_what_answers_depend_on() -> None:
    def fingerprint(name: str = "m", **changes: object) -> str:
        return ServedModel(engine_info(**changes), name).fingerprint

    own = fingerprint(digest="a")
    assert own == fingerprint("n", digest="a", model="other", max_num_seqs=3, runner="2 threads")
    others = [
        fingerprint(digest="b"),
        fingerprint(digest="a", generation_defaults={"top_k": 5}),
        fingerprint(digest="a", logits_processors=("quiet",)),
    ]
    assert len({own, *others}) == 4


async def test_every_field_reaches_the_engine() -> None:
    engine = FakeEngine(logits_processors=("quiet",))
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
        "seed": -3,
        "stop_token_ids": [7],
        "min_tokens": 2,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        "n": 2,
        "length_penalty": 0.5,
        "early_stopping": "never",
        "use_beam_search": False,
        "stop": ["zz"],
        "ignore_eos": True,
        "max_tokens": 9,
        "logprobs": 4,
        "logprobs_mode": "processed",
        "logprob_token_ids": [8, 9],
        "prompt_logprobs": 3,
        "prompt_logprob_start": 1,
        "allowed_token_ids": [80, 97],
        "bad_words": ["no", " way"],
        "logits_processors": ["quiet"],
        "extra_args": {"a": 1, "b": [True, "c", 0.5]},
        "spaces_between_special_tokens": False,
        "skip_reading_prefix_cache": True,
        "stream_interval": 5,
        "logit_bias": {"5": -100},
        "repetition_detection": {"max_pattern_size": 4, "min_count": 3},
    }
    ours_alone = {"detokenize", "bad_word_ids"}  # for use from Python
    of_shape = {"structured_outputs", "thinking"}  # see test_shape_fields
    assert fields.keys() | ours_alone | of_shape == set(SamplingParams.__struct_fields__)
    here = {"priority": -4, "cache_salt": "me"}
    chat = {"logprobs": True, "top_logprobs": fields["logprobs"]}
    async with client(build_app(engine, byte_renderer(), ServerSettings())) as http:
        text = await http.post(TEXT, json={"prompt": "x", **here, **fields})
        turn = await http.post(CHAT, json={"messages": USER, **here, **fields, **chat})
    assert (text.status_code, turn.status_code) == (200, 200), text.text + turn.text
    converted = {
        "logit_bias": {5: -100.0},
        "repetition_detection": RepetitionDetection(max_pattern_size=4, min_count=3),
        "stop": ("zz",),
        "stop_token_ids": (7,),
    }
    for request in engine.requests:
        for name, value in (fields | converted).items():
            assert getattr(request.params, name) == value, name
        words = [[ord(char) for char in word] for word in ("no", " no", "way", " way")]
        assert request.params.bad_word_ids == words
        assert (request.priority, request.cache_salt, request.eos_token_ids) == (-4, "me", ())


async def test_the_engine_says_how_many_logprobs_are_told() -> None:
    engine = FakeEngine(max_logprobs=-1)
    chat = {"messages": USER, "logprobs": True, "top_logprobs": -1, "prompt_logprobs": 70}
    async with client(build_app(engine, byte_renderer(), ServerSettings())) as http:
        assert (await http.post(CHAT, json=chat)).status_code == 200
        assert (await http.post(TEXT, json={"prompt": "x", "logprobs": 60})).status_code == 200
    told = [(r.params.logprobs, r.params.prompt_logprobs) for r in engine.requests]
    assert told == [(-1, 70), (60, None)]


async def test_extra_args_have_two_names(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    both = {"vllm_xargs": {"a": 1, "b": 2}, "extra_args": {"b": 3}}
    await http.post(TEXT, json={"prompt": "x", "vllm_xargs": {"a": 1}})
    await http.post(TEXT, json={"prompt": "x", **both})
    assert [r.params.extra_args for r in engine.requests] == [{"a": 1}, {"a": 1, "b": 3}]


async def test_max_tokens_defaults(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    await http.post(TEXT, json={"prompt": "x"})
    await http.post(CHAT, json={"messages": USER})
    await http.post(CHAT, json={"messages": USER, "max_tokens": 5, "max_completion_tokens": 6})
    text, chat, both = engine.requests
    assert text.params.max_tokens == 16
    assert chat.params.max_tokens == 512 - len(chat.prompt_token_ids)
    assert both.params.max_tokens == 6


async def test_the_models_own_defaults_come_between() -> None:
    engine = FakeEngine(generation_defaults={"temperature": 0.2, "top_k": 50, "top_p": None})
    async with client(build_app(engine, byte_renderer(), ServerSettings())) as http:
        await http.post(TEXT, json={"prompt": "x", "top_k": 3})
    params = engine.requests[0].params
    assert (params.temperature, params.top_k, params.top_p) == (0.2, 3, 1.0)


async def test_special_tokens_of_a_text_completion(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.says = ""
    for skip, text in ((True, ""), (False, "<|im_end|>")):
        body = {"prompt": "x", "skip_special_tokens": skip, "include_stop_str_in_output": True}
        answer = await http.post(TEXT, json=body)
        assert answer.json()["choices"][0]["text"] == text


async def test_stop_reason_and_token_ids(http: httpx.AsyncClient) -> None:
    body = {"prompt": [[120], [65, 66]], "stop": ["is"], "return_token_ids": True}
    first, second = (await http.post(TEXT, json=body)).json()["choices"]
    assert (first["text"], first["finish_reason"], first["stop_reason"]) == ("Par", "stop", "is")
    assert bytes(first["token_ids"]) == b"Paris"
    assert (first["prompt_token_ids"], second["prompt_token_ids"]) == ([120], [65, 66])


async def test_a_long_prompt_is_read_in_a_thread(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.info = FakeEngine(max_model_len=100_000).info
    threads: list[object] = []

    async def to_thread(work: object) -> object:
        threads.append(work)
        return work()  # type: ignore[operator]

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    async with client(build_app(engine, byte_renderer(), ServerSettings())) as http:
        for prompt, count in (("x", 0), ("x" * 5000, 1)):
            assert (await http.post(TEXT, json={"prompt": prompt})).status_code == 200
            assert len(threads) == count
        await http.post(CHAT, json={"messages": [{"role": "user", "content": "x" * 5000}]})
        assert len(threads) == 2


async def test_requests_are_logged_without_their_prompt(caplog: pytest.LogCaptureFixture) -> None:
    app = build_app(FakeEngine(), byte_renderer(), ServerSettings(log_requests=True))
    async with client(app) as http:
        with caplog.at_level(logging.INFO, logger="octavo"):
            await http.post(TEXT, json={"prompt": "secret"})
    (line,) = [record.getMessage() for record in caplog.records]
    assert "6 prompt tokens, 7 generated, stop after" in line
    assert "secret" not in line


async def test_the_openapi_document(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    OpenAPI.model_validate(document)
    schemas = document["components"]["schemas"]
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas, reference
    assert schemas["ChatBody"]["properties"]["temperature"]["anyOf"][0]["maximum"] == 2
    answers = document["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert set(answers) == {"200", "4XX", "5XX"}
    assert set(answers["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(document["paths"]) == {
        "/health",
        "/metrics",
        "/tokenize",
        "/detokenize",
        "/v1/models",
        "/v1/models/{model_id}",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/fork",
        "/v1/cache/explain/{request_id}",
    }


def _references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [r for child in node.values() for r in _references(child)]
    if isinstance(node, list):
        return [r for child in node for r in _references(child)]
    return []
