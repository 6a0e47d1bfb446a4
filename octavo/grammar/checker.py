"""Whether a structure can be compiled, found out in a process that can be killed.

So nothing that a client sends can hold up or end the process that asks.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import IO

import msgspec

from octavo.base.errors import ConfigError, EngineError, RequestError
from octavo.base.structured import StructuredOutputsParams, Thinking
from octavo.grammar.check_process import Preparation, Question, Verdict, write
from octavo.grammar.grammars import digest
from octavo.grammar.vocabulary import Vocabulary

START_SECONDS = 60.0
BLAMED_SECONDS = 60.0  # how long one that took too long is refused without another try
MOST_KEPT = 2**22  # bytes of verdicts
_ENTRY = 200  # bytes of a verdict besides its message


@dataclass(frozen=True)
class Limits:
    """Of one compilation."""

    seconds: float = 2.0
    bytes: int = 2**30


USUAL = Limits()


class Checker:
    """Asks a process of its own, one question after the other. Threads may share it.

    Args:
        load: gives the vocabulary; called once, when the process is first needed.
    """

    def __init__(
        self,
        load: Callable[[], Vocabulary],
        backend: str = "llguidance",
        limits: Limits = USUAL,
    ) -> None:
        self._load = load
        self._backend = backend
        self._limits = limits
        self._turn = Lock()
        self._child: _Child | None = None
        self._verdicts = _Verdicts()

    def start(self) -> None:
        """Have the process ready before there is a question.

        Raises:
            ConfigError: the backend cannot be used.
        """
        with self._turn:
            self._ready()

    def check(self, structure: StructuredOutputsParams, thinking: Thinking | None) -> None:
        """Raises:
        RequestError: it is wrong or not supported, or compiling it takes too much time or memory.
        """
        if not self.is_known(structure, thinking):
            key = digest(structure, thinking)
            with self._turn:
                verdict = self._verdicts.get(key) or self._ask(key, Question(structure, thinking))
            _raise(verdict)

    def is_known(self, structure: StructuredOutputsParams, thinking: Thinking | None) -> bool:
        """Whether nobody must be asked, as it was found right before.

        Raises:
            RequestError: it was found wrong, or plainly is.
        """
        verdict = self._verdicts.get(digest(structure, thinking))
        _raise(verdict or _refused_at_once(structure))
        return verdict is not None

    def close(self) -> None:
        """End the process. There are no questions behind this."""
        with self._turn:
            if self._child is not None:
                self._child.kill()
                self._preparation.close()
            self._child = None

    def _ask(self, key: bytes, question: Question) -> Verdict:
        kind = question.structure.kind
        until = None
        try:
            verdict = self._answer(question)
        except TimeoutError:
            self._replace()
            message = f"{kind}: compiling it took more than {self._limits.seconds:g} s"
            verdict, until = Verdict(message, kind), time.monotonic() + BLAMED_SECONDS
        except EOFError:
            self._replace()
            verdict = Verdict(f"{kind}: compiling it takes too much memory, or fails", kind)
        self._verdicts.put(key, verdict, until)
        return verdict

    def _answer(self, question: Question) -> Verdict:
        """Asks once more where the process ended, as somebody else may have ended it."""
        try:
            verdict = self._ready().ask(question, self._limits.seconds)
        except EOFError:
            self._replace()
            verdict = self._ready().ask(question, self._limits.seconds)
        if verdict.ends:
            self._replace()
        return verdict

    def _ready(self) -> _Child:
        if self._child is None or self._child.has_ended:
            self._replace()
        assert self._child is not None
        self._child.wait_until_ready()
        return self._child

    def _replace(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._child = _Child(self._preparation)

    @cached_property
    def _preparation(self) -> IO[bytes]:
        vocabulary = self._load()
        said = Preparation(
            list(vocabulary.tokens),
            sorted(vocabulary.special_ids),
            vocabulary.eos_ids,
            self._backend,
            self._limits.bytes,
        )
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (`close` does)
        write(file, said)
        return file


def _raise(verdict: Verdict | None) -> None:
    if verdict is not None and verdict.error is not None:
        raise RequestError(verdict.error, verdict.field)


def _refused_at_once(structure: StructuredOutputsParams) -> Verdict | None:
    """What is plainly no JSON does not wait for its turn."""
    kind = structure.kind
    text = getattr(structure, kind)
    if kind not in ("json", "structural_tag") or not isinstance(text, str):
        return None
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        return Verdict(f"{kind} is not JSON: {error}", kind)
    except RecursionError:
        return Verdict(f"{kind} is nested too deep", kind)
    return None


class _Child:
    """One process. Ends with the thread that started it."""

    def __init__(self, preparation: IO[bytes]) -> None:
        file = preparation.fileno()
        self._is_ready = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "octavo.grammar.check_process", str(file), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(file,),
            bufsize=0,
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait_until_ready(self) -> None:
        if self._is_ready:
            return
        try:
            verdict = self._read(START_SECONDS)
        except (TimeoutError, EOFError) as error:
            raise EngineError("the process that compiles structures did not start") from error
        if verdict.error is not None:
            raise ConfigError(verdict.error)
        self._is_ready = True

    def ask(self, question: Question, seconds: float) -> Verdict:
        """Raises:
        TimeoutError: there is no verdict yet.
        EOFError: the process has ended.
        """
        assert self._process.stdin is not None
        try:
            write(self._process.stdin, question)
        except BrokenPipeError as error:
            raise EOFError from error
        return self._read(seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _read(self, seconds: float) -> Verdict:
        end = time.monotonic() + seconds
        length = int.from_bytes(self._exactly(4, end), "little")
        return msgspec.msgpack.decode(self._exactly(length, end), type=Verdict)

    def _exactly(self, count: int, end: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        data = b""
        while len(data) < count:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                raise TimeoutError
            piece = os.read(descriptor, count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


class _Verdicts:
    """By what was asked; those that were not asked for longest go first. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: OrderedDict[bytes, tuple[Verdict, float | None]] = OrderedDict()
        self._bytes = 0

    def get(self, key: bytes) -> Verdict | None:
        with self._lock:
            verdict, until = self._found.get(key, (None, None))
            if until is not None and time.monotonic() > until:
                return None
            if verdict is not None:
                self._found.move_to_end(key)
            return verdict

    def put(self, key: bytes, verdict: Verdict, until: float | None) -> None:
        with self._lock:
            self._drop(*([key] if key in self._found else []))
            self._found[key] = verdict, until
            self._bytes += _size(verdict)
            while self._bytes > MOST_KEPT:
                self._drop(next(iter(self._found)))

    def _drop(self, *keys: bytes) -> None:
        for key in keys:
            self._bytes -= _size(self._found.pop(key)[0])


def _size(verdict: Verdict) -> int:
    return _ENTRY + len(verdict.error or "")
