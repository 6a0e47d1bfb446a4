"""The engine's own process: messages in, steps, messages out. Sleeps in the kernel when idle.

Run as `python -m octavo.engine.process ADDRESS PARENT_PID`, by `engine.client`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import zmq

from octavo.base.errors import OctavoError
from octavo.base.log import configure, logger
from octavo.engine.build import build_engine
from octavo.engine.engine import Engine
from octavo.engine.wire import (
    Abort,
    Add,
    Failed,
    Outputs,
    Ready,
    Start,
    Stop,
    decode_to_engine,
    encode,
)
from octavo.files.model_files import ModelFiles

log = logger("engine")
PR_SET_PDEATHSIG = 1


def serve(engine: Engine, socket: zmq.Socket[bytes]) -> None:
    """Take messages and step until told to stop. Blocks while there is nothing to do."""
    while True:
        while not engine.has_work or socket.poll(0):
            message = decode_to_engine(socket.recv())
            if isinstance(message, Stop):
                return
            if isinstance(message, Add):
                engine.add(message.request)
            elif isinstance(message, Abort):
                engine.abort(message.request_id, message.child)
                socket.send(encode(Outputs([], engine.stats)))
        deltas = engine.step()
        socket.send(encode(Outputs(deltas, engine.stats)))


def start(socket: zmq.Socket[bytes]) -> Engine | None:
    """Build the engine the client asks for; a failure is the client's to show."""
    message = decode_to_engine(socket.recv())
    assert isinstance(message, Start), message
    try:
        engine = build_engine(message.settings, ModelFiles(message.name, Path(message.path)))
    except OctavoError as error:
        socket.send(encode(Failed(str(error), expected=True)))
        return None
    except Exception as error:
        log.error("the engine could not start", exc_info=error)
        socket.send(encode(Failed(f"{type(error).__name__}: {error}", expected=False)))
        return None
    socket.send(encode(Ready(engine.info)))
    return engine


def follow_parent(parent: int) -> None:
    """Die when the parent does, even by SIGKILL; leave signals sent to the whole group to it, as
    it has answers to end first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we got here
        sys.exit(1)


def main(address: str, parent: str) -> int:
    follow_parent(int(parent))
    configure()
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set_hwm(0)
        socket.setsockopt(zmq.LINGER, 5_000)  # ms: a last message must reach the client
        socket.connect(address)
        engine = start(socket)
        if engine is None:
            return 1
        serve(engine, socket)
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
