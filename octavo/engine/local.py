"""An engine in this process and the streams it feeds: what `client` is to an engine process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from typing import TypeVar

from octavo.base.output import Delta
from octavo.base.request import Request
from octavo.engine.engine import Engine

T = TypeVar("T")


class LocalEngine:
    """Streams may be interleaved or run in threads: whoever lacks a delta takes a step, and what
    it brings goes to the inboxes of its owners."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._inboxes: dict[str, deque[Delta]] = {}  # of unfinished requests, by id
        self._unfinished: dict[str, set[int]] = {}  # their sequences

    def generate(self, requests: Sequence[Request]) -> Generator[Delta, None, None]:
        """Deltas of all requests as they come, until each has finished. Leaving early aborts."""
        mine = {request.request_id for request in requests}
        inbox: deque[Delta] = deque()
        try:
            with self._lock:
                for request in requests:
                    self.engine.add(request)
                    self._inboxes[request.request_id] = inbox
                    self._unfinished[request.request_id] = set(range(request.params.n))
            while any(request_id in self._inboxes for request_id in mine):
                self._step_unless(inbox)
                while inbox:
                    delta = inbox.popleft()
                    if delta.index in self._unfinished.get(delta.request_id, ()):
                        if delta.finish_reason is not None:
                            self._ended(delta.request_id, delta.index)
                        yield delta
        finally:
            self.abort(mine)

    def abort(self, request_ids: Collection[str]) -> None:
        """Forget requests and free their blocks; nothing happens to those that have finished."""
        with self._lock:
            for request_id in request_ids:
                self.engine.abort(request_id)
                self._inboxes.pop(request_id, None)
                self._unfinished.pop(request_id, None)

    def abort_child(self, request_id: str, child: int) -> None:
        """The same for one sequence of a request."""
        with self._lock:
            self.engine.abort(request_id, child)
        if child in self._unfinished.get(request_id, ()):
            self._ended(request_id, child)

    def call(self, change: Callable[[Engine], T]) -> T:
        """Do something between steps; deltas that it brings go to their owners."""
        with self._lock:
            try:
                return change(self.engine)
            finally:
                self._hand_out(self.engine.take_deltas())

    def _ended(self, request_id: str, child: int) -> None:
        self._unfinished[request_id].remove(child)
        if not self._unfinished[request_id]:
            del self._unfinished[request_id], self._inboxes[request_id]

    def _step_unless(self, inbox: deque[Delta]) -> None:
        with self._lock:
            if not inbox:  # another thread's step may have filled it meanwhile
                self._hand_out(self.engine.step())

    def _hand_out(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if delta.request_id in self._inboxes:
                self._inboxes[delta.request_id].append(delta)
