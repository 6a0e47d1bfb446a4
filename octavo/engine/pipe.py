"""Frames between an event loop and one engine process: a socket in a private folder."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import zmq

from octavo.base.errors import ConfigError


class Pipe:
    """Bound when made, in a running event loop; whoever connects to `address` is the other end.

    Frames are taken straight from the socket whenever its descriptor wakes the loop: the futures
    of zmq.asyncio would add a quarter to what a server spends on a token of a single stream.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        """`take` is called with each frame that comes; it must not raise.

        Raises:
            ConfigError: the address cannot be had; the message says why.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="octavo-"))  # 0700: nobody else may connect
        self.address = f"ipc://{self.folder}/engine"
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(0)
        self._loop.add_reader(self._socket.fileno(), self._read)
        try:
            self._socket.bind(self.address)
        except zmq.ZMQError as error:  # a temporary folder's path can be too long for a socket
            self.close()
            raise ConfigError(f"cannot listen on {self.address}: {error.strerror}") from error

    def send(self, frame: bytes) -> bool:
        """False, with nothing sent, where the other end is not there (yet, or any more)."""
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        finally:
            self._read()  # sending uses up the wake-up of frames that came meanwhile
        return True

    def close(self) -> None:
        """What is still under way is dropped."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close(linger=0)
        self._context.term()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self) -> None:
        """All frames there are: the descriptor tells of new ones only."""
        try:
            while True:
                self._take(self._socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            pass
