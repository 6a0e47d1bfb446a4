"""A real server on a real engine process: the official SDK, crowds, bad input, disconnects."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time

import httpx
import openai
import psutil
import pytest
from tiny_chat import tiny_chat_model

from octavo import LLM, SamplingParams
from octavo.bench.online import own_server
from octavo.bench.workloads import mixed

OPTIONS = {"dtype": "float32", "kv_memory": "64MiB", "threads": 1, "max_num_seqs": 64}
MESSAGES = [{"role": "user", "content": "What is the capital of Japan?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """40,000 ids, so that the benchmark's prompts are valid."""
    return tiny_chat_model(tmp_path_factory.mktemp("tiny"), vocab_size=40_000)


@pytest.fixture(scope="module")
def url(folder):
    """The server runs in a loop of its own, as it outlives the tests' loops."""
    flags = ["--dtype", "float32", "--kv-memory", "64MiB", "--threads", "1"]
    with asyncio.Runner() as runner:
        server = own_server(str(folder), [*flags, "--served-model-name", "tiny"])
        yield runner.run(server.__aenter__())
        runner.run(server.__aexit__(None, None, None))


@pytest.fixture
async def http(url):
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
async def sdk(url):
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="x", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


async def metric(http, name: str) -> float:
    text = (await http.get("/metrics")).text
    [value] = re.findall(rf"^octavo:{name}{{.*}} (\S+)$", text, re.M)
    return float(value)


async def settled(http, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while await metric(http, "num_requests_running") or await metric(http, "kv_cache_usage_perc"):
        assert time.monotonic() < deadline, "blocks are still held"
        await asyncio.sleep(0.02)


async def test_every_route_by_the_official_sdk(sdk):
    limits = {"max_tokens": 8, "temperature": 0}
    whole = await sdk.chat.completions.create(model="tiny", messages=MESSAGES, **limits)
    assert whole.usage.completion_tokens <= 8
    stream = await sdk.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        stream=True,
        logprobs=True,
        top_logprobs=3,
        stream_options={"include_usage": True},
        **limits,
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    completed = await sdk.completions.create(model="tiny", prompt="Hello", logprobs=2, **limits)
    assert completed.object == "text_completion"
    assert [m.id async for m in sdk.models.list()] == ["tiny"]
    assert (await sdk.models.retrieve("tiny")).id == "tiny"


async def test_streamed_completions_equal_whole_ones(sdk):
    """Not strict: the SDK's type forbids the null finish_reason that OpenAI itself sends."""
    asked = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 12, "seed": 3}
    whole = await sdk.completions.create(**asked)
    sdk._strict_response_validation = False
    chunks = [c async for c in await sdk.completions.create(**asked, stream=True)]
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


async def test_tokenize_and_back(http):
    made = (await http.post("/tokenize", json={"prompt": "The capital of France"})).json()
    back = (await http.post("/detokenize", json={"tokens": made["tokens"]})).json()
    assert back == {"prompt": "The capital of France"}
    assert made["count"] == len(made["tokens"])


async def test_a_crowd_gets_what_the_same_model_gives_in_process(http, folder):
    """64 requests at once through the server, and through LLM: the same tokens."""
    works = mixed()
    llm = LLM(str(folder), skip_tokenizer_init=True, **OPTIONS)
    params = [
        SamplingParams(temperature=t, seed=i, max_tokens=min(w.output_len, 24), ignore_eos=True)
        for i, w in enumerate(works)
        for t in [0.0 if i % 2 else 0.9]
    ]
    offline = llm.generate([w.prompt for w in works], params, use_tqdm=False)

    async def ask(work, p):
        fields = {"temperature": p.temperature, "seed": p.seed, "max_tokens": p.max_tokens}
        extra = {"ignore_eos": True, "return_token_ids": True}
        answer = await http.post("/v1/completions", json={"prompt": work.prompt} | fields | extra)
        return answer.json()["choices"][0]["token_ids"]

    online = await asyncio.gather(*(ask(w, p) for w, p in zip(works, params, strict=True)))
    assert online == [o.outputs[0].token_ids for o in offline]
    await settled(http)


async def test_several_answers_and_beams_are_those_of_the_same_model_in_process(http, folder):
    llm = LLM(str(folder), skip_tokenizer_init=True, **OPTIONS)
    prompt = list(range(5, 42))
    asked = {"prompt": prompt, "return_token_ids": True, "max_tokens": 12, "ignore_eos": True}
    sampled = {"n": 3, "temperature": 0.9, "seed": 4}
    beams = {"n": 3, "use_beam_search": True, "length_penalty": 0.7}
    for fields in (sampled, beams):
        params = SamplingParams(max_tokens=12, ignore_eos=True, **fields)
        [offline] = llm.generate([prompt], params, use_tqdm=False)
        answer = (await http.post("/v1/completions", json=asked | fields)).json()
        online = [choice["token_ids"] for choice in answer["choices"]]
        assert online == [output.token_ids for output in offline.outputs]
        assert len(set(map(tuple, online))) == 3
        assert answer["usage"]["prompt_tokens"] == len(prompt)
        assert answer["usage"]["completion_tokens"] == 3 * 12
    await settled(http)


async def test_a_fork_computes_its_last_token_alone(http):
    fields = {"messages": MESSAGES, "max_tokens": 9, "ignore_eos": True, "cache_explain": True}
    same = {"temperature": 0, "n": 2, "cache_salt": "fork"}
    first = (await http.post("/v1/chat/completions", json=fields | same)).json()
    prompt = first["usage"]["prompt_tokens"]
    whole = {"request_id": first["id"], "index": 1, "cache_explain": True}
    forks = [
        (await http.post("/v1/fork", json=whole | more)).json()
        for more in ({}, {"at_token": prompt + 4}, {"at_token": 3})
    ]
    for fork, kept in zip(forks, (prompt + 9, prompt + 4, 3), strict=True):
        usage = fork["usage"]
        assert usage["prompt_tokens"] == kept
        assert usage["prompt_tokens_details"]["cached_tokens"] == kept - 1
        assert usage["prompt_tokens_details"]["cache"]["reason"] is None
    again = {"request_id": forks[0]["id"], "return_token_ids": True, "n": 2, "temperature": 1.5}
    again |= {"at_token": prompt + 9 + 2, "text": " or", "seed": 1}
    chained = (await http.post("/v1/fork", json=again)).json()
    assert chained["usage"]["prompt_tokens_details"]["cached_tokens"] == prompt + 9 + 2
    assert chained["choices"][0]["token_ids"] != chained["choices"][1]["token_ids"]
    await settled(http)


async def test_a_fork_of_a_running_answer_shares_what_it_has(http):
    fields = {"prompt": [3, 1, 4], "max_tokens": 400, "ignore_eos": True, "stream": True}
    async with http.stream("POST", "/v1/completions", json=fields | {"temperature": 0}) as stream:
        request_id = stream.headers["x-request-id"]
        fork = {"request_id": request_id, "max_tokens": 1}
        while (made := (await http.post("/v1/fork", json=fork)).json())["usage"][
            "prompt_tokens"
        ] < 9:
            await asyncio.sleep(0.01)
        running = await metric(http, "num_requests_running")
    usage = made["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
    assert running == 1
    await settled(http)


async def test_the_second_prompt_is_told_where_it_diverged(http):
    """For the key that asked; another one has a cache of its own."""
    system = "You are kind. It is 12:05 now, and what follows is always the same. " * 2
    question = {"role": "user", "content": "What is the capital of Japan?"}

    async def ask(text, key):
        body = {"messages": [{"role": "system", "content": text}, question], "max_tokens": 2}
        answer = await http.post(
            "/v1/chat/completions",
            json=body | {"cache_explain": True},
            headers={"authorization": f"Bearer {key}"},
        )
        return answer.json()

    first = await ask(system, "alice")
    assert first["usage"]["prompt_tokens_details"]["cache"]["reason"] == "cold"
    later = await ask(system.replace("12:05", "12:06", 1), "alice")
    found = later["usage"]["prompt_tokens_details"]["cache"]
    assert (found["reason"], found["segment"]) == ("diverged", "system")
    assert found["missed_at"] == found["hit_tokens"] > 0
    assert found["before"].endswith("You are kind. It is 12:0")
    assert found["after"].startswith("6 now")
    assert "put what changes behind what stays" in found["advice"]
    other = await ask(system, "bob")
    assert other["usage"]["prompt_tokens_details"]["cache"]["reason"] == "cold"
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    for key, status in (("alice", 200), ("bob", 404)):
        headers = {"authorization": f"Bearer {key}"}
        answer = await http.get(f"/v1/cache/explain/{later['id']}", headers=headers)
        assert answer.status_code == status
        fork = {"request_id": later["id"], "max_tokens": 1}
        assert (await http.post("/v1/fork", json=fork, headers=headers)).status_code == status


GOOD = {"prompt": [9, 9, 9], "max_tokens": 6, "temperature": 0}
BAD = {
    "token id out of range": ({"prompt": [40_000]}, 400, "40000"),
    "empty prompt": ({"prompt": []}, 400, "prompt"),
    "prompt too long": ({"prompt": [1] * 600}, 400, "511"),
    "negative max_tokens": ({"prompt": [1], "max_tokens": -1}, 400, "max_tokens"),
    "unknown model": ({"prompt": [1], "model": "nobody"}, 404, "nobody"),
    "stop id out of range": ({"prompt": [1], "stop_token_ids": [10**9]}, 400, "stop_token_ids"),
}
RAW = {
    "NaN temperature": (b'{"prompt": [1], "temperature": NaN}', "application/json", 400),
    "malformed JSON": (b'{"prompt": [1}', "application/json", 400),
    "wrong content type": (b'{"prompt": [1]}', "text/plain", 415),
    "text that cannot fit": (
        b'{"prompt": "' + b"x" * 2_000_000 + b'"}',
        "application/json",
        400,
    ),
    "10 MB body": (b'{"prompt": "' + b"x" * 10_000_000 + b'"}', "application/json", 413),
}


@pytest.mark.parametrize("name", [*BAD, *RAW])
async def test_bad_input_is_a_clear_4xx_and_hurts_nobody(http, name):
    good = (await http.post("/v1/completions", json=GOOD)).json()["choices"]
    if name in BAD:
        fields, status, said = BAD[name]
        answer = await http.post("/v1/completions", json=fields)
        assert said in answer.json()["error"]["message"]
    else:
        body, kind, status = RAW[name]
        answer = await http.post("/v1/completions", content=body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text
    assert {"message", "type", "param", "code"} <= answer.json()["error"].keys()
    assert (await http.post("/v1/completions", json=GOOD)).json()["choices"] == good
    assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_frees_its_blocks(http, url, stream):
    await settled(http)
    before = await metric(http, "engine_steps_total")
    fields = {"prompt": [1, 2], "max_tokens": 500, "ignore_eos": True, "stream": stream}
    body = json.dumps(fields)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        while not await metric(http, "num_requests_running"):
            await asyncio.sleep(0.005)
    await settled(http)
    assert await metric(http, "engine_steps_total") - before < 400
    assert await metric(http, "num_requests_waiting") == 0


async def test_an_idle_server_costs_nothing(http):
    await settled(http)
    await http.aclose()
    server = next(p for p in psutil.Process().children() if "serve" in p.cmdline())
    tree = [server, *server.children(recursive=True)]
    await asyncio.sleep(0.5)
    before = sum(sum(p.cpu_times()[:2]) for p in tree)
    await asyncio.sleep(3.0)
    assert sum(sum(p.cpu_times()[:2]) for p in tree) - before < 0.03 * len(tree)
