"""Server-sent events, byte for byte but for the id and the time."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from fake_engine import FakeEngine

from octavo.base.errors import EngineDeadError, EngineError, QueueFullError
from octavo.base.output import Delta

USER = [{"role": "user", "content": "Capital of France?"}]


async def transcript(http: httpx.AsyncClient, route: str, **body: object) -> list[str]:
    """The events' data, with what differs from run to run replaced by X."""
    answer = await http.post(route, json={"stream": True, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = answer.text.split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    text = "\n".join(event.removeprefix("data: ") for event in events)
    text = re.sub(r'"id":"(chatcmpl|cmpl)-\w{32}"', '"id":"X"', text)
    text = re.sub(r'"created":\d{10}', '"created":0', text)
    text = re.sub(r'"seed":\d+', '"seed":0', text)
    return re.sub(r'"system_fingerprint":"fp_\w{10}"', '"system_fingerprint":"fp"', text).split(
        "\n"
    )


def chat(choice: str, more: str = "", first: bool = False) -> str:
    seed = '"seed":0,' if first else ""
    choices = f"[{choice}]" if choice else "[]"
    return (
        '{"id":"X","object":"chat.completion.chunk","created":0,"model":"tiny",'
        f'"system_fingerprint":"fp",{seed}"choices":{choices}{more}}}'
    )


def delta(inner: str, reason: str = "null", more: str = "") -> str:
    return f'{{"index":0,"delta":{{{inner}}},"logprobs":null,"finish_reason":{reason}{more}}}'


OPENING = chat(delta('"role":"assistant","content":""'), first=True)


async def test_chat(http: httpx.AsyncClient) -> None:
    assert await transcript(http, "/v1/chat/completions", messages=USER) == [
        OPENING,
        *(chat(delta(f'"content":"{letter}"')) for letter in "Paris."),
        chat(delta("", '"stop"')),
        "[DONE]",
    ]


async def test_chat_usage_comes_last_and_is_null_before(http: httpx.AsyncClient) -> None:
    options = {"include_usage": True}
    lines = await transcript(
        http, "/v1/chat/completions", messages=USER, max_tokens=1, stream_options=options
    )
    usage = (
        ',"usage":{"prompt_tokens":37,"completion_tokens":1,"total_tokens":38,'
        '"prompt_tokens_details":{"cached_tokens":3},'
        '"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,'
        '"rejected_prediction_tokens":0}}'
    )
    assert lines == [
        chat(delta('"role":"assistant","content":""'), ',"usage":null', first=True),
        chat(delta('"content":"P"'), ',"usage":null'),
        chat(delta("", '"length"'), ',"usage":null'),
        chat("", usage),
        "[DONE]",
    ]


async def test_running_usage_is_in_every_chunk(http: httpx.AsyncClient) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    lines = await transcript(
        http, "/v1/chat/completions", messages=USER, max_tokens=2, stream_options=options
    )
    counts = [json.loads(line)["usage"]["completion_tokens"] for line in lines[:-1]]
    assert counts == [0, 1, 2, 2, 2]


async def test_a_stop_string_is_named_and_aborts(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    lines = await transcript(http, "/v1/chat/completions", messages=USER, stop=["is"])
    texts = [json.loads(line)["choices"][0]["delta"].get("content") for line in lines[:-1]]
    assert texts == ["", "P", "a", "r", None]
    assert lines[-2] == chat(delta("", '"stop"', ',"stop_reason":"is"'))
    assert engine.cut == [(engine.requests[0].request_id, 0)]
    assert engine.aborted == []


async def test_token_ids_where_asked_for(http: httpx.AsyncClient) -> None:
    lines = await transcript(
        http, "/v1/chat/completions", messages=USER, return_token_ids=True, max_tokens=1
    )
    opening, text, _ = map(json.loads, lines[:-1])
    assert bytes(opening["prompt_token_ids"][1:5]) == b"user"
    assert text["choices"][0]["token_ids"] == [ord("P")]


@pytest.mark.parametrize("says", ["é🎉", "naïve 👩‍👩‍👧"])
async def test_characters_over_several_tokens_come_whole(
    http: httpx.AsyncClient, engine: FakeEngine, says: str
) -> None:
    engine.says = says
    lines = await transcript(http, "/v1/chat/completions", messages=USER)
    texts = [json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1]]
    assert "".join(texts) == says
    assert not any("\ufffd" in text for text in texts)


async def test_completions(http: httpx.AsyncClient) -> None:
    def chunk(choice: str, seed: str = "") -> str:
        return (
            '{"id":"X","object":"text_completion","created":0,"model":"tiny",'
            f'"system_fingerprint":"fp",{seed}"choices":[{choice}]}}'
        )

    lines = await transcript(http, "/v1/completions", prompt="Hi", max_tokens=2)
    assert lines == [
        chunk('{"index":0,"text":"P","logprobs":null,"finish_reason":null}', '"seed":0,'),
        chunk('{"index":0,"text":"a","logprobs":null,"finish_reason":null}'),
        chunk('{"index":0,"text":"","logprobs":null,"finish_reason":"length"}'),
        "[DONE]",
    ]


async def test_completions_of_several_prompts_stream_at_once(http: httpx.AsyncClient) -> None:
    lines = await transcript(http, "/v1/completions", prompt=["a", "b", "c"], max_tokens=3)
    assert lines.pop() == "[DONE]"
    choices = [json.loads(line)["choices"][0] for line in lines]
    for index in range(3):
        mine = [choice for choice in choices if choice["index"] == index]
        assert [choice["text"] for choice in mine] == ["P", "a", "r", ""]
        assert [choice["finish_reason"] for choice in mine] == [None, None, None, "length"]
    assert [choice["index"] for choice in choices] != sorted(choice["index"] for choice in choices)


async def test_logprobs_in_both_forms(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.says = "é!"
    lines = await transcript(
        http, "/v1/chat/completions", messages=USER, logprobs=True, top_logprobs=2, max_tokens=2
    )
    first, second = (json.loads(line)["choices"][0] for line in lines[1:-2])
    assert (first["delta"], second["delta"]) == ({"content": ""}, {"content": "é"})
    assert first["logprobs"]["content"] == [
        {
            "token": "\\xc3",
            "logprob": -0.5,
            "bytes": [0xC3],
            "top_logprobs": [
                {"token": "\\xc3", "logprob": -0.5, "bytes": [0xC3]},
                {"token": "A", "logprob": -9999.0, "bytes": [65]},
            ],
        }
    ]
    lines = await transcript(http, "/v1/completions", prompt="x", logprobs=1)
    logprobs = [json.loads(line)["choices"][0]["logprobs"] for line in lines[:-2]]
    assert [entry["text_offset"][0] for entry in logprobs] == [0, 0, 1, 2]
    assert logprobs[2]["top_logprobs"] == [{"!": -0.5}]


async def test_the_likeliest_and_the_named_tokens_are_sorted(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    named = {"logprob_token_ids": [90, 0xC3], "logprobs_mode": "processed", "max_tokens": 1}
    fields = {"logprobs": True, "top_logprobs": 2, **named}
    answer = (await http.post("/v1/chat/completions", json={"messages": USER, **fields})).json()
    assert answer["logprobs_mode"] == "processed"
    [token] = answer["choices"][0]["logprobs"]["content"]
    assert (token["token"], token["log_mass"]) == ("P", -0.25)
    assert [(t["token"], t["logprob"], t["bytes"]) for t in token["top_logprobs"]] == [
        ("P", -0.5, [80]),
        ("Z", -7.0, [90]),
        ("\\xc3", -7.0, [0xC3]),
        ("A", -9999.0, [65]),
    ]
    lines = await transcript(http, "/v1/completions", prompt="x", logprobs=1, **named)
    first = json.loads(lines[0])
    assert first["logprobs_mode"] == "processed"
    assert first["choices"][0]["logprobs"] == {
        "tokens": ["P"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"P": -0.5, "Z": -7.0, "\\xc3": -7.0}],
        "text_offset": [0],
        "log_mass": [-0.25],
    }
    assert "logprobs_mode" not in lines[1]


async def test_beams_are_told_of_raw(http: httpx.AsyncClient) -> None:
    body = {"prompt": "x", "use_beam_search": True, "logprobs": 1, "logprobs_mode": "processed"}
    answer = (await http.post("/v1/completions", json=body)).json()
    assert answer["logprobs_mode"] == "raw"
    assert "log_mass" not in answer["choices"][0]["logprobs"]


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions"])
async def test_pieces_of_a_stream_may_be_longer(
    http: httpx.AsyncClient, engine: FakeEngine, route: str
) -> None:
    engine.says, engine.per_delta = "a longer answer", 2
    prompt = {"messages": USER} if route.startswith("/v1/chat") else {"prompt": "x"}
    lines = await transcript(http, route, **prompt, stream_interval=5, return_token_ids=True)
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert [len(c["token_ids"]) for c in choices if "token_ids" in c] == [6, 6, 4]


@pytest.mark.parametrize("stream", [True, False])
async def test_drafts_are_part_of_the_usage(
    http: httpx.AsyncClient, engine: FakeEngine, stream: bool
) -> None:
    engine.per_delta, engine.drafts = 3, (4, 2)
    body = {"prompt": ["x", "y"], "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    answer = await http.post("/v1/completions", json=body)
    last = answer.text.split("\n\n")[-3].removeprefix("data: ") if stream else answer.text
    details = json.loads(last)["usage"]["completion_tokens_details"]
    # "Paris." and its end are three deltas of 3, 3 and 1 tokens: in the last one a draft was cut
    accepted = 2 * (2 + 2 + 1)
    assert details == {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": 2 * 3 * 4 - accepted,
    }


async def test_an_error_after_the_first_event_is_an_event(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.fails_after = (1, EngineDeadError("killed"))
    lines = await transcript(http, "/v1/chat/completions", messages=USER)
    error = '{"message":"killed","type":"service_unavailable_error","param":null,'
    assert lines == [
        OPENING,
        chat(delta('"content":"P"')),
        f'{{"error":{error}"code":"engine_dead"}}}}',
        "[DONE]",
    ]


async def test_an_unexpected_error_in_a_stream_tells_nothing(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.fails_after = (1, KeyError("secret"))
    lines = await transcript(http, "/v1/completions", prompt="x")
    assert json.loads(lines[-2])["error"]["type"] == "server_error"
    assert "secret" not in "".join(lines)


async def test_a_lost_request_is_an_error_event(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.ends_with = Delta("x", [], finish_reason="error", error="NaN in the logits")
    lines = await transcript(http, "/v1/completions", prompt="x")
    assert json.loads(lines[-2])["error"]["message"] == "NaN in the logits"
    assert lines[-1] == "[DONE]"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (QueueFullError("full", 1.2), 429),
        (EngineDeadError("gone"), 503),
        (EngineError("failed"), 500),
        (KeyError("secret"), 500),
    ],
)
async def test_errors_before_the_first_event_have_their_status(
    http: httpx.AsyncClient, engine: FakeEngine, error: Exception, status: int, stream: bool
) -> None:
    engine.fails_after = (0, error)
    answer = await http.post("/v1/chat/completions", json={"messages": USER, "stream": stream})
    assert answer.status_code == status
    assert "secret" not in answer.text
    assert answer.json()["error"]["message"]
    assert answer.headers.get("retry-after") == ("2" if status == 429 else None)
