"""The socket between an event loop and a process: order, absence, wake-ups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from octavo.engine.pipe import Pipe


@contextmanager
def peer(pipe: Pipe) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set_hwm(0)
        socket.connect(pipe.address)
        yield socket


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_frames_that_came_before_a_send_are_taken_though_it_used_their_wake_up():
    got: list[bytes] = []
    pipe = Pipe(got.append)
    frames = [b"%d" % i for i in range(100)]
    with peer(pipe) as socket:
        await until(lambda: pipe.send(b"hello"))
        for frame in frames:
            socket.send(frame)
        time.sleep(0.1)  # they arrive while the loop does not look
        assert pipe.send(b"meanwhile")
        await until(lambda: len(got) == len(frames))
        assert got == frames
    pipe.close()


async def test_nothing_is_kept_for_a_process_that_is_not_there():
    pipe = Pipe(lambda frame: None)
    assert not pipe.send(b"lost")
    with peer(pipe) as socket:
        await until(lambda: pipe.send(b"first"))
        assert await asyncio.to_thread(socket.recv) == b"first"
    await until(lambda: not pipe.send(b"lost"))
    pipe.close()
    assert not pipe.folder.exists()
