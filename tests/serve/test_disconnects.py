"""A client that goes away aborts its request, at any moment, on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import uvicorn
from fake_engine import FakeEngine
from fastapi import FastAPI

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def port(app: FastAPI) -> AsyncIterator[int]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", ws="none", log_config=None))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await running


async def post(
    port: int, route: str, body: object
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = f"POST {route} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(content) + content)
    await writer.drain()
    return reader, writer


async def until(condition: object) -> None:
    async with asyncio.timeout(2):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("route", "body", "count"),
    [
        ("/v1/chat/completions", {"messages": USER}, 1),
        ("/v1/completions", {"prompt": "x"}, 1),
        ("/v1/completions", {"prompt": ["x", "y", "z"]}, 3),
        ("/v1/chat/completions", {"messages": USER, "n": 3}, 1),
        ("/v1/completions", {"prompt": ["x", "y"], "n": 2}, 2),
    ],
)
async def test_requests_of_a_gone_client_are_aborted(
    port: int, engine: FakeEngine, route: str, body: object, count: int, stream: bool, after: int
) -> None:
    engine.stalls_after = after
    assert isinstance(body, dict)
    reader, writer = await post(port, route, body | {"stream": stream})
    if stream and after:
        assert b"200 OK" in await reader.readline()
    await until(lambda: len(engine.requests) == count)
    assert engine.aborted == []
    writer.close()
    await until(lambda: len(engine.aborted) == count)
    assert set(engine.aborted) == {request.request_id for request in engine.requests}


async def test_a_client_that_reads_to_the_end_aborts_nothing(port: int, engine: FakeEngine) -> None:
    reader, writer = await post(port, "/v1/completions", {"prompt": "x", "stream": True})
    await reader.readuntil(b"[DONE]")
    writer.close()
    await asyncio.sleep(0.05)
    assert engine.aborted == []


async def test_a_refusal_of_a_large_body_is_read_by_its_sender(port: int) -> None:
    """The sender is still sending when the answer comes, and must not see a reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size = 10 * 2**20
    head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {size}\r\n\r\n".encode())
    for _ in range(size // 2**16):
        writer.write(b" " * 2**16)
        await writer.drain()
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"larger than 100000 bytes" in answer
    writer.close()


async def test_a_body_that_does_not_come_is_refused(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.serve.gate.BODY_SECONDS", 0.1)
    monkeypatch.setattr("octavo.serve.gate.LINGER_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(head + b'content-length: 50\r\n\r\n{"prompt":')
    answer = await asyncio.wait_for(reader.read(), 1)
    assert answer.startswith(b"HTTP/1.1 408")
    writer.close()


async def test_a_refused_sender_that_stalls_is_hung_up_on(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.serve.gate.LINGER_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: 99999999\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 1)
    assert answer.startswith(b"HTTP/1.1 413")
    writer.close()
