"""Several answers of one prompt: n, beams, best_of, in whole answers and in streams."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine, byte_renderer
from test_golden_events import USER, chat, transcript

from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import ServerSettings
from octavo.serve.app import build_app
from octavo.serve.generation import Generation
from octavo.serve.metrics import Metrics

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def delta(index: int, inner: str, reason: str = "null") -> str:
    return f'{{"index":{index},"delta":{{{inner}}},"logprobs":null,"finish_reason":{reason}}}'


async def test_two_chat_answers_as_events(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.says = ["Hi", "Yo!"]
    options = {"include_usage": True}
    lines = await transcript(http, CHAT, messages=USER, n=2, stream_options=options)
    role = '"role":"assistant","content":""'
    events = [
        delta(0, role),
        delta(1, role),
        delta(0, '"content":"H"'),
        delta(1, '"content":"Y"'),
        delta(0, '"content":"i"'),
        delta(1, '"content":"o"'),
        delta(0, "", '"stop"'),
        delta(1, '"content":"!"'),
        delta(1, "", '"stop"'),
    ]
    usage = (
        ',"usage":{"prompt_tokens":37,"completion_tokens":7,"total_tokens":44,'
        '"prompt_tokens_details":{"cached_tokens":3},'
        '"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,'
        '"rejected_prediction_tokens":0}}'
    )
    assert lines == [
        *(chat(event, ',"usage":null', first=i == 0) for i, event in enumerate(events)),
        chat("", usage),
        "[DONE]",
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_string_ends_one_answer(
    http: httpx.AsyncClient, engine: FakeEngine, stream: bool
) -> None:
    engine.says = ["one two", "three four", "five six"]
    body = {"messages": USER, "n": 3, "stop": ["ee", "x"], "stream": stream}
    answer = await http.post(CHAT, json=body)
    request_id = engine.requests[0].request_id
    assert engine.cut == [(request_id, 1), (request_id, 2)]
    assert engine.aborted == []
    choices = _merged(answer.text) if stream else answer.json()["choices"]
    found = [(c["message"]["content"], c["finish_reason"], c["stop_reason"]) for c in choices]
    assert found == [("one two", "stop", None), ("thr", "stop", "ee"), ("five si", "stop", "x")]


def _merged(events: str) -> list[dict[str, Any]]:
    """Choices of a chat's stream, put together."""
    found: dict[int, dict[str, Any]] = {}
    for event in events.split("\n\n")[:-2]:
        [choice] = json.loads(event.removeprefix("data: "))["choices"]
        mine = found.setdefault(choice["index"], {"message": {"content": ""}, "stop_reason": None})
        assert "finish_reason" not in mine
        mine["message"]["content"] += choice["delta"].get("content", "")
        if choice["finish_reason"]:
            mine |= {"finish_reason": choice["finish_reason"]}
            mine["stop_reason"] = choice.get("stop_reason")
    return [found[index] for index in sorted(found)]


async def test_choices_of_text_completions_are_counted_by_prompt(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.says = ["a", "bc", "def"]
    body = {"prompt": ["x", "yz"], "n": 3, "best_of": 3, "return_token_ids": True, "logprobs": 1}
    answer = (await http.post(TEXT, json=body)).json()
    assert [c["index"] for c in answer["choices"]] == list(range(6))
    assert [c["text"] for c in answer["choices"]] == ["a", "bc", "def"] * 2
    prompts = [bytes(c["prompt_token_ids"]) for c in answer["choices"]]
    assert prompts == [b"x"] * 3 + [b"yz"] * 3
    assert [len(c["logprobs"]["tokens"]) for c in answer["choices"]] == [2, 3, 4] * 2
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 18)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 6}
    streamed = await http.post(TEXT, json=body | {"stream": True})
    texts, ends = [""] * 6, [0] * 6
    for event in streamed.text.split("\n\n")[:-2]:
        [choice] = json.loads(event.removeprefix("data: "))["choices"]
        texts[choice["index"]] += choice["text"]
        ends[choice["index"]] += choice["finish_reason"] == "stop"
        offsets = (choice["logprobs"] or {"text_offset": []})["text_offset"]
        assert all(offset <= len(texts[choice["index"]]) for offset in offsets)
    assert texts == ["a", "bc", "def"] * 2
    assert ends == [1] * 6


async def test_a_stream_tells_the_prompts_token_ids_once(http: httpx.AsyncClient) -> None:
    body = {"messages": USER, "n": 3, "stream": True, "return_token_ids": True}
    assert (await http.post(CHAT, json=body)).text.count("prompt_token_ids") == 1


async def test_leaving_when_one_answer_is_whole_is_an_abort(engine: FakeEngine) -> None:
    engine.says = ["a", "much longer"]
    metrics = Metrics(engine, "tiny")
    generation = Generation(engine, byte_renderer(), metrics)  # type: ignore[arg-type]
    request = generation.request([1, 2], SamplingParams(n=2, max_tokens=99))
    async with aclosing(generation.stream(request)) as pieces:
        async for piece in pieces:
            if piece.finish_reason:
                break
    assert engine.aborted == [request.request_id]
    assert b'finished_reason="abort",model_name="tiny"} 1.0' in metrics.text()


async def test_characters_of_each_answer_come_whole(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.says = ["é🎉", "日本", "plain"]
    body = {"messages": USER, "n": 3, "stream": True}
    choices = _merged((await http.post(CHAT, json=body)).text)
    assert [c["message"]["content"] for c in choices] == engine.says


@pytest.mark.parametrize("stream", [True, False])
async def test_beams_come_best_first(
    http: httpx.AsyncClient, engine: FakeEngine, stream: bool
) -> None:
    engine.says = ["best", "good", "fair"]
    beams = {"use_beam_search": True, "length_penalty": 0.6, "early_stopping": True, "n": 3}
    answer = await http.post(CHAT, json={"messages": USER, "stream": stream, **beams})
    choices = _merged(answer.text) if stream else answer.json()["choices"]
    assert [c["message"]["content"] for c in choices] == engine.says
    params = engine.requests[0].params
    assert (params.n, params.use_beam_search) == (3, True)
    assert (params.length_penalty, params.early_stopping) == (0.6, True)


async def test_a_models_controls_of_chance_are_not_for_beams() -> None:
    own = {"temperature": 0.2, "repetition_penalty": 1.3, "max_tokens": 5}
    engine = FakeEngine(generation_defaults=own)
    app = build_app(engine, byte_renderer(), ServerSettings())  # type: ignore[arg-type]
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://octavo"
    ) as http:
        await http.post(TEXT, json={"prompt": "x", "use_beam_search": True, "n": 2})
    params = engine.requests[0].params
    assert (params.temperature, params.repetition_penalty, params.max_tokens) == (1.0, 1.0, 5)


async def test_one_lost_answer_loses_the_request(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.fails_after = (3, ValueError("bug"))
    answer = await http.post(CHAT, json={"messages": USER, "n": 2})
    assert answer.status_code == 500
    assert engine.aborted == [engine.requests[0].request_id]
