"""Going on from any token of an answer: what the engine is asked, and who may."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import httpx
import pytest
from fake_engine import EOS, FakeEngine, byte_renderer
from fastapi import FastAPI

from octavo.base.settings import ServerSettings
from octavo.engine.history import KEPT
from octavo.serve.app import build_app

CHAT, TEXT, FORK = "/v1/chat/completions", "/v1/completions", "/v1/fork"
USER = [{"role": "user", "content": "hi"}]
PARIS = [*b"Paris.", EOS]


async def ask(http: httpx.AsyncClient, route: str = TEXT, **fields: Any) -> dict[str, Any]:
    body = {"messages": USER} if route == CHAT else {"prompt": "x"} if route == TEXT else {}
    answer = await http.post(route, json=body | fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("route", [CHAT, TEXT])
async def test_it_goes_on_where_an_answer_ended(
    http: httpx.AsyncClient, engine: FakeEngine, route: str
) -> None:
    first = await ask(http, route)
    forked = await ask(http, FORK, request_id=first["id"])
    before, after = engine.requests
    assert after.prompt_token_ids == [*before.prompt_token_ids, *PARIS]
    assert after.fork_of == before.request_id == first["id"]
    assert forked["object"] == "text_completion"
    assert forked["id"].startswith("fork-")
    assert forked["choices"][0]["text"] == "Paris."
    assert forked["usage"]["prompt_tokens"] == len(after.prompt_token_ids)


@pytest.mark.parametrize(
    ("at_token", "text", "wanted"),
    [
        (None, "", [*b"abc", *PARIS]),
        (1, "", b"a"),
        (3, "", b"abc"),
        (5, "", b"abcPa"),
        (5, "ul", b"abcPaul"),
        (5, [7, 8], [*b"abcPa", 7, 8]),
        (10, [], [*b"abc", *PARIS]),
    ],
)
async def test_from_any_token_with_any_text(
    http: httpx.AsyncClient,
    engine: FakeEngine,
    at_token: int | None,
    text: object,
    wanted: list[int],
) -> None:
    first = await ask(http, prompt="abc")
    await ask(http, FORK, request_id=first["id"], at_token=at_token, text=text)
    assert engine.requests[1].prompt_token_ids == list(wanted)


async def test_any_choice_of_any_prompt(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.says = ["one", "two"]
    first = await ask(http, prompt=["a", "b", "c"], n=2)
    for choice in first["choices"]:
        index = choice["index"]
        await ask(http, FORK, request_id=first["id"], index=index)
        said = "abc"[index // 2] + choice["text"]
        request = engine.requests[-1]
        assert request.prompt_token_ids == [*said.encode(), EOS]
        assert request.fork_of == engine.requests[index // 2].request_id
        assert request.params.n == 1
    answer = await http.post(FORK, json={"request_id": first["id"], "index": 6})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "index"
    assert "between 0 and 5" in answer.json()["error"]["message"]


async def test_forks_of_forks(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    first = await ask(http)
    second = await ask(http, FORK, request_id=first["id"], at_token=3, text="!", n=2)
    third = await ask(http, FORK, request_id=second["id"], index=1, at_token=6)
    assert bytes(engine.requests[2].prompt_token_ids) == b"xPa!Pa"
    assert engine.requests[2].fork_of == second["id"] != third["id"]


async def test_a_running_answer_can_be_forked(app: FastAPI, engine: FakeEngine) -> None:
    """The server hands out what it has; its client reads on."""
    engine.stalls_after = 3
    streams = app_client(app)
    running = asyncio.create_task(
        streams.post(TEXT, json={"prompt": "x", "stream": True}, timeout=5)
    )
    while not engine.requests:
        await asyncio.sleep(0.001)
    request_id = engine.requests[0].request_id
    for _ in range(20):  # the fake engine takes a turn of the loop for each token
        await asyncio.sleep(0)
    engine.stalls_after = None
    async with app_client(app) as http:
        await ask(http, FORK, request_id=request_id)
    assert bytes(engine.requests[1].prompt_token_ids) == b"xPar"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await streams.aclose()


async def test_what_an_aborted_answer_had_can_be_forked(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.fails_after = (2, RuntimeError("lost"))
    await http.post(TEXT, json={"prompt": "x"})
    engine.fails_after = None
    await ask(http, FORK, request_id=engine.requests[0].request_id)
    assert bytes(engine.requests[1].prompt_token_ids) == b"xPa"


async def test_params_are_those_of_the_forked_request(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    same = {"temperature": 0.5, "top_k": 4, "logit_bias": {"65": 1.0}, "max_tokens": 9}
    first = await ask(http, seed=11, stop=["zz"], n=3, logprobs=2, **same)
    plain = await ask(http, FORK, request_id=first["id"])
    changed = {"temperature": 0.9, "seed": 12, "stop": "yy", "n": 2, "logprobs": 0, "max_tokens": 2}
    await ask(http, FORK, request_id=first["id"], **changed)
    _, one, other = (request.params for request in engine.requests)
    assert (one.temperature, one.top_k, one.logit_bias) == (0.5, 4, {65: 1.0})
    assert (one.max_tokens, one.stop, one.n, one.logprobs) == (9, ("zz",), 1, 2)
    assert one.seed not in (None, 11)
    assert plain["choices"][0]["logprobs"]["tokens"][0] == "P"
    assert (other.temperature, other.top_k, other.seed, other.n) == (0.9, 4, 12, 2)
    assert (other.stop, other.logprobs, other.max_tokens) == (("yy",), 0, 2)


async def test_a_fork_streams(http: httpx.AsyncClient) -> None:
    first = await ask(http)
    answer = await http.post(
        FORK, json={"request_id": first["id"], "stream": True, "max_tokens": 2}
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.count('"object":"text_completion"') == 3
    assert answer.text.endswith("data: [DONE]\n\n")
    assert answer.headers["x-request-id"].startswith("fork-")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"index": -1}, "index"),
        ({"index": 1}, "index"),
        ({"index": 500}, "index"),
        ({"index": 10**9}, "index"),
        ({"at_token": 0}, "at_token"),
        ({"at_token": 9}, "at_token"),
        ({"text": [300]}, "text"),
        ({"text": [-1]}, "text"),
        ({"text": "y" * 8000}, "text"),
        ({"text": 5}, "text"),
        ({"cache_salt": "mine"}, "cache_salt"),
        ({"n": 129}, "n"),
        ({"request_id": ""}, "request_id"),
    ],
)
async def test_what_cannot_be_is_named(
    http: httpx.AsyncClient, engine: FakeEngine, fields: dict[str, Any], param: str
) -> None:
    first = await ask(http)
    answer = await http.post(FORK, json={"request_id": first["id"]} | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert len(engine.requests) == 1


async def test_only_the_last_ones_are_kept(http: httpx.AsyncClient) -> None:
    """Those that never got a token push out nobody."""
    ids = [(await ask(http, max_tokens=1))["id"] for _ in range(KEPT + 1)]
    for _ in range(3):
        await http.post(TEXT, json={"prompt": ""})
    assert (await http.post(FORK, json={"request_id": ids[1]})).status_code == 200
    assert (await http.post(FORK, json={"request_id": ids[0]})).status_code == 404


def app_client(app: FastAPI, key: str | None = None) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://octavo", headers=headers)


async def test_ids_belong_to_the_key_they_came_with(app: FastAPI, engine: FakeEngine) -> None:
    """Another key, or none, reads what it would read of an id that never was."""
    async with app_client(app, "alice") as alice, app_client(app, "bob") as bob:
        mine = (await ask(alice, prompt=["x", "y"], n=2))["id"]
        never = "cmpl-" + "0" * 32
        for http in (bob, app_client(app)):
            for index in (0, 2, 3):
                for path in ("/v1/cache/explain/{}?index={}", None):
                    answers = []
                    for id in (mine, never):
                        if path:
                            answer = await http.get(path.format(id, index))
                        else:
                            answer = await http.post(FORK, json={"request_id": id, "index": index})
                        answers.append((answer.status_code, answer.text.replace(id, "ID")))
                    assert answers[0] == answers[1]
                    assert answers[0][0] == 404
        assert (await alice.post(FORK, json={"request_id": mine, "index": 3})).status_code == 200
        assert (await alice.get(f"/v1/cache/explain/{mine}?index=2")).status_code == 200
    assert len(engine.requests) == 3


async def test_keys_share_nothing_unless_they_ask_to(app: FastAPI, engine: FakeEngine) -> None:
    for key in (None, "alice", "bob"):
        async with app_client(app, key) as http:
            await ask(http)
            salted = await ask(http, CHAT, cache_salt="ours")
            await ask(http, FORK, request_id=salted["id"])
    owners = [hashlib.sha256(key).hexdigest() for key in (b"alice", b"bob")]
    expected = [(owner, "") for owner in ("", *owners)]  # the engine keeps owners apart
    assert [(r.owner, r.cache_salt) for r in engine.requests[::3]] == expected
    for requests in (engine.requests[1::3], engine.requests[2::3]):
        assert [(r.owner, r.cache_salt) for r in requests] == [(o, "ours") for o in ("", *owners)]


@pytest.mark.parametrize(
    ("header", "has_owner"),
    [
        ("Bearer key", True),
        ("bearer  key ", True),
        ("Bearer", False),
        ("Bearer  ", False),
        ("Basic a2V5", False),
        ("key", False),
    ],
)
async def test_only_a_bearer_key_makes_an_owner(
    app: FastAPI, engine: FakeEngine, header: str, has_owner: bool
) -> None:
    async with app_client(app) as http:
        await http.post(TEXT, json={"prompt": "x"}, headers={"authorization": header})
    assert engine.requests[0].owner == (hashlib.sha256(b"key").hexdigest() if has_owner else "")


async def test_a_server_of_another_time_knows_no_ids(http: httpx.AsyncClient) -> None:
    first = await ask(http)
    app = build_app(FakeEngine(), byte_renderer(), ServerSettings())  # type: ignore[arg-type]
    async with app_client(app) as other:
        answer = await other.post(FORK, json={"request_id": first["id"]})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "request_id"
