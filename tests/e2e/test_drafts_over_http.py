"""A server that speculates gives the answers of one that does not, and counts its drafts."""

from __future__ import annotations

import re

import httpx
from tiny_chat import tiny_chat_model

from octavo.bench.online import own_server

FLAGS = ["--dtype", "float32", "--kv-memory", "16MiB", "--threads", "1"]
ROUND = [40, 41, 42, 43, 44, 45, 46, 47]
BODY = {
    "prompt": ROUND * 6,
    "max_tokens": 48,
    "temperature": 0,
    "logprobs": 2,
    "logit_bias": {str(token): 60 for token in ROUND},  # so that it goes on going round, nearly
    "return_token_ids": True,
    "ignore_eos": True,
}


async def test_drafts_change_nothing_but_the_counts(tmp_path):
    folder = str(tiny_chat_model(tmp_path))
    found = []
    for more in ([], ["--speculation", "ngram", "--num-drafts", "4"]):
        async with own_server(folder, [*FLAGS, *more]) as url, httpx.AsyncClient() as http:
            answer = await http.post(f"{url}/v1/completions", json=BODY, timeout=60)
            found.append((answer.json(), (await http.get(f"{url}/metrics")).text))
    (plain, _), (drafted, metrics) = found
    assert drafted["choices"] == plain["choices"]
    assert drafted["system_fingerprint"] == plain["system_fingerprint"]
    assert set(plain["usage"]["completion_tokens_details"].values()) == {0}
    counts = drafted["usage"]["completion_tokens_details"]
    accepted, rejected = (counts[f"{what}_prediction_tokens"] for what in ("accepted", "rejected"))
    assert accepted > 0
    assert value(metrics, "accepted_tokens") >= accepted
    assert value(metrics, "draft_tokens") == accepted + rejected
    by_position = re.findall(r"^octavo:spec_decode\w+per_pos_total{.*} (\S+)$", metrics, re.M)
    assert sum(map(float, by_position)) == value(metrics, "accepted_tokens")


def value(metrics: str, name: str) -> float:
    [found] = re.findall(rf"^octavo:spec_decode_num_{name}_total{{.*}} (\S+)$", metrics, re.M)
    return float(found)
