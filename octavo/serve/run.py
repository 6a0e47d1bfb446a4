"""`octavo serve`: from settings to a listening server, and down again without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn
from fastapi import FastAPI

from octavo.base import log
from octavo.base.errors import ConfigError, OctavoError
from octavo.base.settings import EngineSettings, ServerSettings
from octavo.engine.client import AsyncEngine
from octavo.engine.grammars import find_vocabulary
from octavo.engine.info import EngineInfo
from octavo.files.locate import locate
from octavo.files.model_files import ModelFiles
from octavo.grammar.checker import Checker
from octavo.grammar.service import CompileService
from octavo.serve.app import build_app
from octavo.text.renderer import Renderer, load_renderer

BACKLOG = 2048
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
DRAIN_SECONDS = 30  # how long answers under way may take once the server is told to stop
LAST_WORDS_SECONDS = 5  # for those that then end with an error to reach their clients
KEEP_ALIVE_SECONDS = 75  # longer than the idle time of usual clients and proxies
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXAMPLE = """Try:
  curl {url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"messages": [{{"role": "user", "content": "What is the capital of Japan?"}}]}}'
"""


def serve(engine_settings: EngineSettings, server_settings: ServerSettings) -> int:
    """Serve until told to stop. The exit code: 1 where serving could not begin."""
    log.configure(logging.getLevelNamesMapping()[server_settings.log_level.upper()])
    try:
        if engine_settings.model.skip_tokenizer_init:
            raise ConfigError("a server speaks text: it needs the tokenizer")
        with bind(server_settings.host, server_settings.port) as listener:
            model = engine_settings.model
            files = locate(model.model, code=model.trust_remote_code)
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_run(files, engine_settings, server_settings, listener))
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):  # told to stop before it was ready
        return INTERRUPTED
    return 0


def bind(host: str, port: int) -> socket.socket:
    """A socket that has the address but does not listen yet: clients wait for no half-made server.

    Raises:
        ConfigError: the address cannot be had; the message says why.
    """
    if not 0 <= port < 2**16:
        raise ConfigError(f"port must be between 0 and 65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _no_address(host, port, error) from error
    return listener


async def _run(
    files: ModelFiles,
    settings: EngineSettings,
    server_settings: ServerSettings,
    listener: socket.socket,
) -> None:
    """Start the engine, serve until a signal, close the engine."""
    task = asyncio.current_task()
    assert task is not None
    _on_signals(lambda _: task.cancel())
    renderer = load_renderer(
        files,
        settings.model.tokenizer,
        settings.model.chat_template,
        server_settings.tool_call_parser,
        server_settings.reasoning_parser,
    )
    reads = _told(renderer)  # before the engine, as a name may be wrong
    engine = await AsyncEngine.start(settings, files)
    structures = _structures(settings, files, engine.info)
    try:
        app = build_app(
            engine,
            renderer,
            server_settings,
            other_names=(files.name, settings.model.model),
            structures=structures,
            seed=settings.seed,
        )
        server = _Server(_uvicorn_config(app))
        _on_signals(lambda number: _stop(server, engine, number))
        _listen(listener)
        name = server_settings.served_model_name or engine.info.model
        _announce(engine.info, reads, name, listener)
        await server.serve(sockets=[listener])
    finally:
        if structures is not None:
            await structures.close()
        await engine.close()


def _structures(
    settings: EngineSettings, files: ModelFiles, info: EngineInfo
) -> CompileService | None:
    """None where the engine takes no structures."""
    if not info.structured_outputs:
        return None
    backend = settings.model.structured_outputs_backend
    load = partial(find_vocabulary, settings, files, info)
    return CompileService(Checker(load, backend))


class _Server(uvicorn.Server):
    """uvicorn, with signals left to `_on_signals`: it would end the process before the engine."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _stop(server: uvicorn.Server, engine: AsyncEngine, number: int) -> None:
    """Take no new requests; what is not answered in time ends with an error, not with a cut."""
    server.handle_exit(number, None)
    loop = asyncio.get_running_loop()
    loop.call_later(DRAIN_SECONDS, engine.end_streams, "the server is stopping")


def _on_signals(act: Callable[[int], object]) -> None:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, act, number)


def _uvicorn_config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS + LAST_WORDS_SECONDS,
    )


def _listen(listener: socket.socket) -> None:
    """Raises:
    ConfigError: another server took the address meanwhile.
    """
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise _no_address(host, port, error) from error


def _no_address(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}")


def _announce(info: EngineInfo, reads: str, name: str, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    defaults = ", ".join(f"{name} {value}" for name, value in info.generation_defaults.items())
    print(info.table, file=sys.stderr)
    if defaults:
        print(f"Unless a request says otherwise: {defaults}", file=sys.stderr)
    print(reads, file=sys.stderr)
    print(f"\nOctavo serves {name} at {url}\n", file=sys.stderr)
    print(_EXAMPLE.format(url=url), file=sys.stderr)


def _told(renderer: Renderer) -> str:
    """How answers are read."""
    if (why := renderer.tools_refused) is None:
        calls = f"tool calls in the {renderer.format.name} format, which has proved itself"
    else:
        calls = f"no tool calls: {why}"
    pair = renderer.format.description.reasoning
    between = "no reasoning" if pair is None else "reasoning from {!r} to {!r}".format(*pair)
    return f"Answers have {between}, {calls}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
