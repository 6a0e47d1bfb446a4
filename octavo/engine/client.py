"""The asyncio side of an engine process: streams of deltas, aborts, and its death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator

import msgspec

from octavo.base.errors import (
    ConfigError,
    EngineDeadError,
    EngineError,
    QueueFullError,
    RequestError,
)
from octavo.base.log import logger
from octavo.base.output import Delta, EngineStats
from octavo.base.request import Request
from octavo.base.settings import EngineSettings
from octavo.engine.info import EngineInfo
from octavo.engine.pipe import Pipe
from octavo.engine.wire import (
    Abort,
    Add,
    Failed,
    Outputs,
    Ready,
    Start,
    Stop,
    ToEngine,
    decode_from_engine,
    encode,
)
from octavo.files.model_files import ModelFiles

log = logger("client")
RETRY_SECONDS = 1.0  # what a client that finds the queue full is told to wait
CONNECT_SECONDS = 0.01  # between looks whether a new process is there
LAST_WORDS_SECONDS = 0.2  # what a process said before it ended may still be under way
# Threads that spin while they wait take the core from whoever computes next to them, this server
# included: a step then takes several times as long. Read by OpenMP when it is loaded.
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive"}
STOP_SECONDS = 5.0  # how long a stopping process may take before it is killed;
KEEP_SECONDS = 60.0  # where it writes down what its KV cache holds


class _Stream:
    """Deltas of one request on their way to its reader."""

    def __init__(self, request: Request) -> None:
        self.queue: asyncio.Queue[Delta | None] = asyncio.Queue()  # None: no more will come
        self.unfinished = set(range(request.params.n))


class AsyncEngine:
    """One engine process and the streams it feeds. Made by `start`, in a running event loop."""

    def __init__(self, most: int) -> None:
        """`most`: streams at once."""
        self.info: EngineInfo
        self.stats = EngineStats()
        self.dead: str | None = None
        self._most = most
        self._stop_seconds = STOP_SECONDS
        self._process: asyncio.subprocess.Process
        self._pipe = Pipe(self._take)
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()  # while it starts
        self._streams: dict[str, _Stream] = {}
        self._watching: asyncio.Task[None] | None = None  # since it is ready

    @classmethod
    async def start(cls, settings: EngineSettings, files: ModelFiles) -> AsyncEngine:
        """Start the process and wait until its model is loaded.

        Raises:
            ConfigError: the settings are impossible; the message is the engine's own.
            EngineError: the engine failed, or its process ended, before it was ready.
        """
        engine = cls(settings.scheduler.max_num_seqs + settings.scheduler.max_waiting)
        if settings.cache.kv_swap_dir is not None:
            engine._stop_seconds = KEEP_SECONDS
        command = ("-m", "octavo.engine.process", engine._pipe.address, str(os.getpid()))
        engine._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=SLEEPING_THREADS | os.environ
        )
        try:
            await engine._handshake(Start(settings, files.name, str(files.path)))
        except BaseException:
            await engine.close()
            raise
        engine._watching = asyncio.create_task(engine._watch())
        return engine

    async def generate(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Deltas of one request, the last of each sequence with a finish reason. Leaving early
        aborts it.

        Raises:
            RequestError: the request's id is in use.
            QueueFullError: as many requests wait as may.
            EngineDeadError: the engine's process has ended.
        """
        if self.dead is not None:
            raise EngineDeadError(self.dead)
        if request.request_id in self._streams:
            raise RequestError(f"request_id {request.request_id!r} is in use", "request_id")
        if len(self._streams) >= self._most:
            raise QueueFullError(f"{self._most} requests run or wait already", RETRY_SECONDS)
        stream = self._streams[request.request_id] = _Stream(request)
        try:
            self._send(Add(request))
            while stream.unfinished:
                delta = await stream.queue.get()
                if delta is None:
                    raise EngineDeadError(self.dead or "the engine was closed")
                if delta.index in stream.unfinished:  # not aborted meanwhile
                    if delta.finish_reason is not None:
                        stream.unfinished.remove(delta.index)
                    yield delta
        finally:
            del self._streams[request.request_id]
            if stream.unfinished and self.dead is None:
                with contextlib.suppress(EngineDeadError):  # then there is nothing to abort
                    self._send(Abort(request.request_id))

    def abort(self, request_id: str, child: int) -> None:
        """End one sequence of a request whose deltas are being read; no more come of it."""
        stream = self._streams.get(request_id)
        if stream is not None and child in stream.unfinished:
            stream.unfinished.remove(child)
            with contextlib.suppress(EngineDeadError):
                self._send(Abort(request_id, child))

    async def close(self) -> None:
        """End the process; streams still open raise EngineDeadError."""
        self.end_streams("the engine was closed")
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._process.returncode is None:
            await self._end_process()
        self._pipe.close()

    async def _end_process(self) -> None:
        """Ask first; a process that does not listen (any more, or yet) is killed."""
        try:
            self._send(Stop())
            await asyncio.wait_for(self._process.wait(), self._stop_seconds)
        except (EngineDeadError, TimeoutError):
            self._process.kill()
            await self._process.wait()

    async def _handshake(self, start: Start) -> None:
        answer = asyncio.ensure_future(self._ask(start))
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait((answer, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and not answer.done():
                await asyncio.wait((answer,), timeout=LAST_WORDS_SECONDS)
            if not answer.done():
                raise EngineError(f"the engine's process ended ({_cause(ended.result())})")
            self._take_first(answer.result())
        finally:
            for future in (answer, ended):
                future.cancel()
            await asyncio.gather(answer, ended, return_exceptions=True)

    def _take_first(self, frame: bytes) -> None:
        message = decode_from_engine(frame)
        if isinstance(message, Failed):
            raise (ConfigError if message.expected else EngineError)(message.message)
        assert isinstance(message, Ready), message
        self.info = message.info

    async def _ask(self, start: Start) -> bytes:
        """Send as soon as the process is there; its first answer."""
        while not self._pipe.send(encode(start)):
            await asyncio.sleep(CONNECT_SECONDS)
        return await self._answers.get()

    def _send(self, message: ToEngine) -> None:
        """Raises EngineDeadError where nobody is there to take it."""
        if not self._pipe.send(encode(message)):
            raise EngineDeadError(self.dead or "the engine's process is gone")

    def _take(self, frame: bytes) -> None:
        if self._watching is None:
            return self._answers.put_nowait(frame)
        try:
            self._take_outputs(frame)
        except Exception as error:  # streams must not wait for what cannot be read
            log.error("the engine's answers cannot be read", exc_info=error)
            self.end_streams("the engine's answers cannot be read")

    def _take_outputs(self, frame: bytes) -> None:
        message = decode_from_engine(frame)
        assert isinstance(message, Outputs), message
        self.stats = message.stats
        for delta in message.deltas:
            if stream := self._streams.get(delta.request_id):
                stream.queue.put_nowait(delta)

    async def _watch(self) -> None:
        code = await self._process.wait()
        await asyncio.sleep(LAST_WORDS_SECONDS)
        self.end_streams(f"the engine's process ended ({_cause(code)})")
        log.error("%s", self.dead)

    def end_streams(self, why: str) -> None:
        """Every stream, and every later request, raises EngineDeadError."""
        self.dead = self.dead or why
        nothing = {"running": 0, "waiting": 0, "kv_blocks_used": 0, "states_used": 0}
        self.stats = msgspec.structs.replace(self.stats, **nothing)
        for stream in self._streams.values():
            stream.queue.put_nowait(None)


def _cause(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
