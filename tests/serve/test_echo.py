"""Echoes, and what is told of prompts, on a scripted engine."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from vocabularies import sentencepiece

from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.serve.openai.logprobs import OffsetLogprobs
from octavo.text.tokenizer import Tokenizer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


async def choices(http: httpx.AsyncClient, stream: bool, **body: Any) -> list[dict[str, Any]]:
    """Whole choices; those of a stream put together."""
    answer = await http.post(TEXT, json={"stream": stream, **body})
    assert answer.status_code == 200, answer.text
    if not stream:
        return answer.json()["choices"]
    found: dict[int, dict[str, Any]] = {}
    for event in answer.text.split("\n\n")[:-2]:
        for choice in json.loads(event.removeprefix("data: "))["choices"]:
            add(found.setdefault(choice["index"], {"text": "", "logprobs": None}), choice)
    return [found[index] for index in sorted(found)]


def add(whole: dict[str, Any], chunk: dict[str, Any]) -> None:
    whole["text"] += chunk["text"]
    whole |= {key: chunk[key] for key in ("index", "finish_reason", "stop_reason") if key in chunk}
    if chunk["logprobs"]:
        whole["logprobs"] = whole["logprobs"] or {key: [] for key in chunk["logprobs"]}
        for key, values in chunk["logprobs"].items():
            whole["logprobs"][key] += values


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("per_delta", [1, 3])
async def test_an_echo_comes_first_with_its_logprobs(
    http: httpx.AsyncClient, engine: FakeEngine, stream: bool, per_delta: int
) -> None:
    engine.per_delta = per_delta
    body = {"prompt": "né", "echo": True, "logprobs": 1, "max_tokens": 2}
    [choice] = await choices(http, stream, **body)
    assert choice["text"] == "néPa"
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] == {
        "tokens": ["n", "\\xc3", "\\xa9", "P", "a"],
        "token_logprobs": [None, -0.5, -0.5, -0.5, -0.5],
        "top_logprobs": [None, *({token: -0.5} for token in ("\\xc3", "\\xa9", "P", "a"))],
        "text_offset": [0, 1, 1, 2, 3],
    }


@pytest.mark.parametrize("stream", [True, False])
async def test_the_prompt_alone(http: httpx.AsyncClient, stream: bool) -> None:
    body = {"prompt": ["ab", "xyz"], "echo": True, "logprobs": 0, "max_tokens": 0, "n": 2}
    found = await choices(http, stream, **body)
    assert [choice["index"] for choice in found] == [0, 1, 2, 3]
    assert [choice["text"] for choice in found] == ["ab", "ab", "xyz", "xyz"]
    assert [choice["logprobs"]["tokens"] for choice in found] == [[*c["text"]] for c in found]
    assert found[3]["logprobs"]["top_logprobs"] == [None, {"y": -0.5}, {"z": -0.5}]
    assert {choice["finish_reason"] for choice in found} == {"length"}


async def test_the_prompt_alone_without_logprobs(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    [choice] = await choices(http, False, prompt="ab", echo=True, max_tokens=0)
    assert (choice["text"], choice["logprobs"]) == ("ab", None)
    metrics = (await http.get("/metrics")).text
    labels = '{engine="0",model_name="tiny"}'
    assert f"octavo:prompt_tokens_total{labels} 2.0" in metrics
    assert f"octavo:time_to_first_token_seconds_count{labels} 0.0" in metrics


@pytest.mark.parametrize("prompt", [[0xC3], [[0x61, 0xC3]]])
async def test_a_prompt_that_ends_inside_a_character(
    http: httpx.AsyncClient, engine: FakeEngine, prompt: list[Any]
) -> None:
    """The prompt leaves one unfinished, which the first token of the answer shows to be none."""
    engine.says = "\u00e9"  # C3 A9
    [choice] = await choices(http, False, prompt=prompt, echo=True, max_tokens=2, logprobs=0)
    ids = prompt[0] if isinstance(prompt[0], list) else prompt
    assert choice["text"] == bytes([*ids, 0xC3, 0xA9]).decode(errors="replace")
    begin = len(ids) - 1
    assert choice["logprobs"]["text_offset"] == [*range(len(ids)), begin, begin + 1]


async def test_special_tokens_are_where_the_client_wrote_them(http: httpx.AsyncClient) -> None:
    text = "<|im_start|>a<|im_end|>"
    [choice] = await choices(http, False, prompt=text, echo=True, max_tokens=1, logprobs=0)
    assert choice["text"] == text + "P"
    assert choice["logprobs"]["text_offset"] == [0, 12, 13, 23]
    [choice] = await choices(http, False, prompt=[256, 97, 257], echo=True, max_tokens=1)
    assert choice["text"] == "aP"


@pytest.mark.parametrize("route", [CHAT, TEXT])
async def test_prompt_logprobs_by_token_id(http: httpx.AsyncClient, route: str) -> None:
    fields = {"messages": USER} if route == CHAT else {"prompt": "abc"}
    answer = (await http.post(route, json={**fields, "prompt_logprobs": 2})).json()
    place = answer if route == CHAT else answer["choices"][0]
    first, second, *rest = place["prompt_logprobs"]
    assert first is None
    assert len(rest) == answer["usage"]["prompt_tokens"] - 2
    token = ord("i") if route == CHAT else ord("b")
    shown = next(entry for entry in (second, *rest) if str(token) in entry)
    assert shown == {
        str(token): {"logprob": -0.5, "rank": 1, "decoded_token": chr(token)},
        "65": {"logprob": -9999.0, "rank": 2, "decoded_token": "A"},
    }


async def test_an_echo_and_prompt_logprobs_each_tell_as_many_as_asked(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    body = {"prompt": "ab", "echo": True, "logprobs": 1, "prompt_logprobs": 3, "max_tokens": 1}
    [choice] = await choices(http, False, **body)
    assert engine.requests[0].params.prompt_logprobs == 3
    assert len(choice["prompt_logprobs"][1]) == 3
    assert choice["logprobs"]["top_logprobs"][1] == {"b": -0.5}
    body |= {"logprobs": 2, "prompt_logprobs": 0, "prompt": [98, 97, 99]}
    [choice] = await choices(http, False, **body)
    assert [len(entry or ()) for entry in choice["prompt_logprobs"]] == [0, 1, 1]
    assert choice["logprobs"]["top_logprobs"][1] == {"a": -0.5, "A": -9999.0}


async def test_prompt_logprobs_from_a_position(http: httpx.AsyncClient) -> None:
    body = {"prompt": "abcd", "prompt_logprobs": 0, "prompt_logprob_start": 2}
    [choice] = await choices(http, False, **body)
    told = choice["prompt_logprobs"]
    assert told[:2] == [None, None]
    assert [list(entry) for entry in told[2:]] == [["99"], ["100"]]


async def test_the_cache_is_explained_of_a_prompt_alone(http: httpx.AsyncClient) -> None:
    body = {"prompt": "abcd", "echo": True, "max_tokens": 0, "cache_explain": True}
    answer = await http.post(TEXT, json=body)
    assert answer.status_code == 200, answer.text
    report = answer.json()["usage"]["prompt_tokens_details"]["cache"]
    assert report["prompt_tokens"] == 4


@pytest.mark.parametrize("text", ["The capital of France", " two  spaces", "naïve 你好。 x"])
def test_offsets_where_a_tokenizer_adds_a_space_and_a_first_token(text: str) -> None:
    tokenizer = Tokenizer(sentencepiece())
    ids = [min(tokenizer.special_ids), *tokenizer.encode(text, add_special_tokens=False)]
    params = SamplingParams(max_tokens=1, prompt_logprobs=0, logprobs=0, logprobs_mode="raw")
    request = Request(request_id="r", prompt_token_ids=ids, params=params)
    told = [TokenLogprobs(id, -1.0, 1, []) for id in ids[1:]]
    found = OffsetLogprobs(tokenizer, request).echo(text, told)
    assert found.text_offset[:2] == [0, 0]
    ends = [*found.text_offset[1:], len(text)]
    shown = [text[a:b] for a, b in zip(found.text_offset, ends, strict=True)]
    assert "".join(shown) == text
    for token, part in zip(found.tokens[2:], shown[2:], strict=True):
        assert token == part or token.startswith("\\x")
