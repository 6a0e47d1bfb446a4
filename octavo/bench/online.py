"""A workload over HTTP: every request at once, streaming, as a client would see it.

The client speaks just enough HTTP/1.1 over asyncio to cost next to nothing beside the server:
client libraries take longer over a token than the server does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from octavo.base.errors import ConfigError, EngineError
from octavo.bench.report import Timeline
from octavo.bench.workloads import Work

START_SECONDS = 600.0


async def run_over_http(url: str, works: Sequence[Work], salt: str) -> list[Timeline]:
    """`salt` keeps runs apart: one finds nothing that an earlier one left in the prefix cache.

    Raises:
        EngineError: the server answers anything but the tokens asked for.
    """
    host, port = _address(url)
    return list(await asyncio.gather(*(_one(host, port, work, salt) for work in works)))


@asynccontextmanager
async def own_server(model: str, flags: Sequence[str]) -> AsyncIterator[str]:
    """`octavo serve` on a free port, until the block is left; gives its URL."""
    port = await _free_port()
    command = (sys.executable, "-m", "octavo", "serve", model, *flags, "--port", str(port))
    process = await asyncio.create_subprocess_exec(*command)
    try:
        await _wait_until_healthy(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _one(host: str, port: int, work: Work, salt: str) -> Timeline:
    body = json.dumps(
        {
            "prompt": work.prompt,
            "max_tokens": work.output_len,
            "temperature": 0,
            "ignore_eos": True,
            "cache_salt": salt,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    sent = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        raise EngineError(f"no server at {host}:{port}: {error.strerror}") from error
    writer.write(_request("POST", "/v1/completions", host, body))
    line = Timeline(len(work.prompt), sent, [])
    tokens = await _read_stream(reader, line)
    writer.close()
    if tokens != work.output_len:
        raise EngineError(f"{work.output_len} tokens asked for, the server says {tokens}")
    if unseen := tokens - line.output_tokens:  # tokens that have no text of their own
        line.arrivals.append((time.perf_counter(), unseen))
    return line


async def _read_stream(reader: asyncio.StreamReader, line: Timeline) -> int:
    """Note when chunks come; the number of tokens is the server's last word."""
    status = await reader.readline()
    if b" 200 " not in status:
        raise EngineError(f"the server answers {status.decode().strip()!r}")
    tokens = 0
    while data := await reader.readline():
        if data.startswith(b'data: {"error"'):
            raise EngineError(data.decode().strip())
        if data.startswith(b"data: {"):
            chunk = json.loads(data[6:])
            if chunk["choices"] and chunk["choices"][0]["text"]:
                line.arrivals.append((time.perf_counter(), 1))
            elif chunk.get("usage"):
                tokens = chunk["usage"]["completion_tokens"]
        elif data.startswith(b"data: [DONE]"):
            break
    return tokens


def _request(method: str, path: str, host: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def _wait_until_healthy(process: asyncio.subprocess.Process, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.returncode is not None:
            raise EngineError(f"the server ended with exit code {process.returncode}")
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_request("GET", "/health", "127.0.0.1"))
            healthy = b" 200 " in await reader.readline()
            writer.close()
            if healthy:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise EngineError(f"the server was not ready within {START_SECONDS:.0f} s")


async def _free_port() -> int:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(f"--url {url}: write it as http://host:port")
    return parts.hostname, parts.port or 80
