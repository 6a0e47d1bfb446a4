"""The process that compiles what clients send, to see whether it can be done. It may be killed.

Run as `python -m octavo.grammar.check_process FILE PARENT_PID`, by `grammar.checker`: FILE is the
number of an open file that says what to prepare. Questions come in on stdin, verdicts go out on
stdout; each is a length of 4 bytes and that much of MessagePack.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path
from threading import Thread, stack_size
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from octavo.base.errors import ConfigError, RequestError
from octavo.base.structured import StructuredOutputsParams, Thinking
from octavo.grammar.grammars import Maker
from octavo.grammar.guide import Structure
from octavo.grammar.matcher import Matcher
from octavo.grammar.vocabulary import Vocabulary

PR_SET_PDEATHSIG = 1
GENTLE_AFTER = 0.05  # seconds; from then on, whatever else runs comes first
STACK = 2**26  # bytes, for what is nested deep
MOST_MASKS = 32  # that are tried, each way
MASK_SECONDS = 0.2  # of one of them, at most
STRIDE = 7919  # a prime: what is drawn has no pattern


class Preparation(msgspec.Struct, frozen=True):
    """What is the same for all questions."""

    tokens: list[bytes]
    special_ids: list[int]
    eos_ids: tuple[int, ...]
    backend: str
    most_bytes: int  # above what the process takes when it is ready


class Question(msgspec.Struct, frozen=True):
    structure: StructuredOutputsParams
    thinking: Thinking | None


class Verdict(msgspec.Struct, frozen=True):
    """With no error: it can be done, or (the first one) the process is ready."""

    error: str | None = None
    field: str | None = None
    ends: bool = False  # the process does, behind this


def main(file: int, parent: int) -> None:
    _die_with(parent)
    questions = sys.stdin.buffer
    verdicts = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # so that no library writes between verdicts
    size = os.fstat(file).st_size
    wanted = msgspec.msgpack.decode(os.pread(file, size, 0)[4:], type=Preparation)
    vocabulary = Vocabulary(wanted.tokens, frozenset(wanted.special_ids), wanted.eos_ids)
    try:
        maker = Maker(vocabulary, wanted.backend)
    except ConfigError as error:
        write(verdicts, Verdict(str(error), None, True))
        return
    stack_size(STACK)
    _gently(maker, Question(StructuredOutputsParams(choice=["a"]), None))  # the first is slow
    _limit_memory(wanted.most_bytes + STACK)
    write(verdicts, Verdict())
    while (question := _read(questions)) is not None:
        verdict = _gently(maker, question)
        write(verdicts, verdict)
        if verdict.ends:
            return


def write(file: IO[bytes], message: msgspec.Struct) -> None:
    body = msgspec.msgpack.encode(message)
    data = len(body).to_bytes(4, "little") + body
    while data:  # a raw file takes what fits
        data = data[file.write(data) :]


def _read(file: IO[bytes]) -> Question | None:
    """None: nobody asks any more."""
    length = file.read(4)
    if len(length) < 4:
        return None
    return msgspec.msgpack.decode(file.read(int.from_bytes(length, "little")), type=Question)


def _die_with(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is the parent's
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _limit_memory(more: int) -> None:
    """Refuse memory beyond what the process has now and `more` bytes."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        now = int(status.split("VmData:")[1].split()[0]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))


def _gently(maker: Maker, question: Question) -> Verdict:
    """Most are done in a moment. One that takes longer gives way to all that runs beside it."""
    found: list[Verdict] = []
    thread = Thread(target=lambda: found.append(_judged(maker, question)))
    thread.start()
    thread.join(GENTLE_AFTER)
    if thread.is_alive() and thread.native_id is not None and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, thread.native_id, 19)
    thread.join()
    return found[0]


def _judged(maker: Maker, question: Question) -> Verdict:
    kind = question.structure.kind
    try:
        _try_masks(maker, maker.structure(question.structure, question.thinking))
    except RequestError as error:
        return Verdict(str(error), error.field)
    except RecursionError:
        return Verdict(f"{kind}: it is too long or nested too deep", kind)
    except MemoryError:
        return Verdict(f"{kind}: compiling it takes too much memory", kind, True)
    except Exception as error:  # it would fail in the engine, too
        return Verdict(f"{kind}: it cannot be compiled ({type(error).__name__}: {error})", kind)
    return Verdict()


def _try_masks(maker: Maker, structure: Structure) -> None:
    """As an answer would be followed: along the shortest one, and one that goes anywhere."""
    completion = structure.completion
    shortest = completion.tokens(completion.start) if completion is not None else []
    matcher = structure.compiled.matcher()
    for token_id in shortest[:MOST_MASKS]:
        _mask(matcher, maker.vocabulary)
        if not matcher.consume(token_id):
            break
    matcher = structure.compiled.matcher()
    for step in range(MOST_MASKS):
        allowed = np.flatnonzero(_mask(matcher, maker.vocabulary))
        if not len(allowed) or not matcher.consume(int(allowed[step * STRIDE % len(allowed)])):
            break


def _mask(matcher: Matcher, vocabulary: Vocabulary) -> NDArray[np.uint8]:
    """One number for each token: 1, it may come next."""
    mask = np.empty(vocabulary.words, np.int32)
    begin = time.thread_time()
    matcher.mask(mask)
    if time.thread_time() - begin > MASK_SECONDS:
        raise RequestError(
            f"structured_outputs: it is too complex: finding what may come next takes more than"
            f" {MASK_SECONDS:g} s",
            "structured_outputs",
        )
    return np.unpackbits(mask.view(np.uint8), bitorder="little")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
