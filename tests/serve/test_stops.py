"""However an answer comes, in pieces of any length, streamed or whole, it ends alike."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import httpx
import pytest
from fake_engine import EOS, FakeEngine

SAYS = "abcabd \u00e9a"
STOPS: list[list[str]] = [[], ["bd"], ["ca", "abca"], ["\u00e9"], ["zz", "d "]]


def oracle(stops: list[str], include: bool, min_tokens: int) -> dict[str, Any]:
    """By looking at the whole text after each token; a token is a byte."""
    data = SAYS.encode()
    for count in range(min_tokens + 1, len(data) + 1):
        text = data[:count].decode(errors="ignore")
        grown = len(text) > len(data[: count - 1].decode(errors="ignore"))
        hits = [stop for stop in stops if grown and text.endswith(stop)]
        if hits:
            hit = max(hits, key=len)
            kept = text if include else text.removesuffix(hit)
            return {"text": kept, "token_ids": [*data[:count]], "stop_reason": hit}
    shown = SAYS + ("<|im_end|>" if include else "")
    return {"text": shown, "token_ids": [*data, EOS], "stop_reason": None}


async def answer(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await http.post("/v1/completions", json=body)
    if not body["stream"]:
        return response.json()["choices"][0]
    whole = {"text": "", "token_ids": [], "stop_reason": None, "finish_reason": None}
    whole["logprobs"] = {"tokens": []}
    for event in response.text.split("\n\n")[:-2]:
        [chunk] = json.loads(event.removeprefix("data: "))["choices"]
        assert whole["finish_reason"] is None
        whole["text"] += chunk["text"]
        whole["token_ids"] += chunk.get("token_ids", [])
        whole["logprobs"]["tokens"] += (chunk["logprobs"] or {"tokens": []})["tokens"]
        whole["finish_reason"] = chunk["finish_reason"]
        whole["stop_reason"] = chunk.get("stop_reason")
    return whole


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("stops", STOPS, ids=str)
async def test_every_chunking_ends_alike(
    http: httpx.AsyncClient, engine: FakeEngine, stops: list[str], stream: bool
) -> None:
    engine.says = SAYS
    body = {"prompt": "x", "stop": stops, "logprobs": 0, "max_tokens": 99, "stream": stream}
    body |= {"return_token_ids": True, "skip_special_tokens": False}
    lengths = range(1, len(SAYS) + 3)
    for include, min_tokens, interval in product((False, True), (0, 4, 6), (1, 3)):
        expected = oracle(stops, include, min_tokens)
        for engine.per_delta in lengths:
            controls = {"include_stop_str_in_output": include, "min_tokens": min_tokens}
            found = await answer(http, body | controls | {"stream_interval": interval})
            case = (include, min_tokens, interval, engine.per_delta)
            assert {key: found[key] for key in expected} == expected, case
            assert found["finish_reason"] == "stop", case
            assert len(found["logprobs"]["tokens"]) == len(expected["token_ids"]), case
    ended_early = len(engine.cut)
    engine_knew = all(r.params.stop_strings == tuple(stops) for r in engine.requests)
    assert engine_knew and engine.aborted == []
    assert (ended_early > 0) == (oracle(stops, False, 0)["stop_reason"] is not None)
