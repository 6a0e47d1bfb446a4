"""Starting and stopping, as a process: exit codes, the last line, signals."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import byte_renderer

from octavo.base.settings import EngineSettings, ModelSettings, ServerSettings
from octavo.files.model_files import ModelFiles
from octavo.serve import run
from octavo.text.renderer import Renderer

# A server whose engine is the fake one; `start` and `says` are what a test varies.
PROGRAM = """
import asyncio, sys
sys.path.insert(0, {folder!r})
from fake_engine import FakeEngine, byte_renderer
from octavo.base.errors import CapacityError
from octavo.base.settings import EngineSettings, ServerSettings
from octavo.files.model_files import ModelFiles
from octavo.serve import run

class Engine(FakeEngine):
    async def close(self):
        print("engine closed", flush=True)

async def start(settings, files):
    {start}

run.locate = lambda name, **more: ModelFiles(name, None)
run.load_renderer = lambda *_: byte_renderer()
run.AsyncEngine.start = start
run.DRAIN_SECONDS = {drain}
sys.exit(run.serve(EngineSettings(), ServerSettings(port={port})))
"""
READY = "return Engine(generation_defaults={'temperature': 0.2}, structured_outputs=False)"
STALLS = "engine = Engine(structured_outputs=False); engine.stalls_after = 1; return engine"


class Server:
    """The program, with its messages gathered as they come."""

    def __init__(self, start: str = READY, port: int = 0, drain: float = 30) -> None:
        folder = str(Path(__file__).parent)
        program = PROGRAM.format(folder=folder, start=start, port=port, drain=drain)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.messages: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.messages.append(line)

    def port(self) -> int:
        self.wait_for("Octavo serves")
        line = next(line for line in self.messages if "Octavo serves" in line)
        return int(line.rsplit(":", 1)[1])

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while not any(text in line for line in self.messages):
            assert time.monotonic() < deadline, self.messages
            time.sleep(0.02)

    def ended(self) -> tuple[int, str]:
        """Exit code and output."""
        output, _ = self.process.stdout.read(), self._reader.join()  # type: ignore[union-attr]
        self.process.stdout.close()  # type: ignore[union-attr]
        self.process.stderr.close()  # type: ignore[union-attr]
        return self.process.wait(10), output


@pytest.fixture(autouse=True)
def no_log_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the process's own, and other tests look at it."""
    monkeypatch.setattr("octavo.base.log.configure", lambda _: None)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(number: signal.Signals) -> None:
    server = Server()
    connection = http.client.HTTPConnection("127.0.0.1", server.port())
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    assert answer["choices"][0]["message"]["content"] == "Paris."
    server.process.send_signal(number)
    assert server.ended() == (0, "engine closed\n")
    connection.close()
    said = "".join(server.messages)
    assert said.startswith("the memory plan\n")
    assert "Unless a request says otherwise: temperature 0.2\n" in said
    assert "Answers have reasoning from '<think>' to '</think>', no tool calls: the chat" in said
    assert "Octavo serves tiny at http://127.0.0.1:" in said
    assert "curl http://127.0.0.1:" in said
    assert "Traceback" not in said


def test_a_second_signal_does_not_wait_for_answers() -> None:
    server = Server(STALLS)
    port = server.port()
    with socket.create_connection(("127.0.0.1", port)) as client:
        body = b'{"prompt": "x", "stream": true}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        client.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.ended() == (0, "engine closed\n")


def test_an_answer_that_takes_too_long_ends_with_an_error() -> None:
    server = Server(STALLS, drain=0.3)
    with socket.create_connection(("127.0.0.1", server.port())) as client:
        body = b'{"prompt": "x", "stream": true}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        client.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        said = client.recv(1000)
        server.process.send_signal(signal.SIGTERM)
        while more := client.recv(1000):
            said += more
    assert b'{"error":{"message":"the server is stopping"' in said
    assert b"data: [DONE]" in said
    assert server.ended() == (0, "engine closed\n")
    assert "Traceback" not in "".join(server.messages)


def test_it_can_be_stopped_before_it_is_ready() -> None:
    server = Server("print('loading', file=sys.stderr, flush=True); await asyncio.sleep(60)")
    server.wait_for("loading")
    server.process.send_signal(signal.SIGTERM)
    assert server.ended() == (run.INTERRUPTED, "")
    assert server.messages == ["loading\n"]


def test_an_engine_that_does_not_start_is_one_line() -> None:
    server = Server("raise CapacityError('weights need 9 GiB; set --dtype bfloat16')")
    assert server.ended() == (1, "")
    assert server.messages == ["octavo: weights need 9 GiB; set --dtype bfloat16\n"]


@pytest.mark.parametrize("option", ["tool_call_parser", "reasoning_parser"])
def test_an_unknown_parser_is_one_line(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*given: Any) -> Renderer:
        return Renderer(byte_renderer().tokenizer, None, *given[3:])

    monkeypatch.setattr(run, "locate", lambda name, **_: ModelFiles(name, None))  # type: ignore[arg-type]
    monkeypatch.setattr(run, "load_renderer", load)
    assert run.serve(EngineSettings(), ServerSettings(port=0, **{option: "absent"})) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"octavo: {option} 'absent' is unknown")
    assert said.count("\n") == 1


def test_a_busy_port_is_one_line(taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.serve(EngineSettings(), ServerSettings(port=taken)) == 1
    assert capsys.readouterr().err == (
        f"octavo: cannot listen on 127.0.0.1:{taken}: Address already in use\n"
    )


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.1", 0), ("127.0.0.1", 99999), ("256.0.0.1", 1)]
)
def test_an_impossible_address_is_one_line(
    host: str, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.serve(EngineSettings(), ServerSettings(host=host, port=port)) == 1
    said = capsys.readouterr().err
    assert said.startswith("octavo: ")
    assert str(port) in said
    assert said.count("\n") == 1


def test_a_server_needs_its_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    settings = EngineSettings(model=ModelSettings(skip_tokenizer_init=True))
    assert run.serve(settings, ServerSettings(port=0)) == 1
    assert "tokenizer" in capsys.readouterr().err
