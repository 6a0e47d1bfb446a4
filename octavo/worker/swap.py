"""Where pages of KV memory go that were evicted from it, and come back from.

Knows names and bytes, not what they stand for. Who calls never waits for a disk: one thread makes
all changes, another reads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Condition

import numpy as np

from octavo.base.log import logger
from octavo.worker.swap_pages import NAME, SwapPages, copied

log = logger("swap")


class _Saved:
    """One save of a name, until the next one or a discard."""

    def __init__(self, waiting: np.ndarray | None) -> None:
        self.waiting = waiting  # the copy, until it is put


class SwapStore:
    """Saves, loads and discards pages, uint8 [page_bytes], by name, for one calling thread.

    A name is lower-case hex and "-". A load finds what was saved last before it, even while that
    is still being written, and never anything else. A save or discard of the same name during the
    load may spoil it; it is then told as not found.

    Args:
        pages: what they are kept in; closed with the store.
        max_waiting_bytes: of copies that wait to be put; saves beyond that are dropped.
    """

    def __init__(self, pages: SwapPages, max_waiting_bytes: int = 256 * 2**20) -> None:
        self.dropped = 0  # saves that were not kept
        self._pages = pages
        self._last = {name: _Saved(None) for name, _ in pages.names()}
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self._loading = 0
        self._ended: list[tuple[str, bool]] = []
        self._warned: set[str] = set()
        self._lock = Condition()  # for all of the above
        self._changes = ThreadPoolExecutor(1, "swap-changes")
        self._loads = ThreadPoolExecutor(1, "swap-loads")

    @property
    def lasts(self) -> bool:
        """Whether another process can find the pages again."""
        return self._pages.lasts

    def names(self) -> list[tuple[str, int]]:
        """What was there at start, with the bytes of each page, the least recently used first."""
        return self._pages.names()

    def save(self, name: str, page: np.ndarray, patient: bool = False) -> None:
        """Keep a copy, taken before this returns; `patient`: wait until there is room for it.

        Whatever goes wrong later (a full disk) means only that the name will not be found.
        """
        assert NAME.fullmatch(name), name
        with self._lock:
            while patient and self._waiting_bytes:
                self._lock.wait()
        if self._waiting_bytes + page.nbytes > self._max_waiting_bytes:
            self._drop("pages come faster than they can be kept; some are dropped")
            self.discard(name)
            return
        saved = _Saved(page.copy())
        with self._lock:
            self._last[name] = saved
            self._waiting_bytes += page.nbytes
            self._change(self._put, name, saved)

    def load(self, name: str, page: np.ndarray) -> None:
        """Begin to fill `page`, which is the store's until `finished` tells of it."""
        assert NAME.fullmatch(name), name
        assert page.flags.c_contiguous and page.flags.writeable, page.flags
        with self._lock:
            self._loading += 1
            job = self._loads.submit(self._fill, name, self._last.get(name), page)
        job.add_done_callback(partial(self._end, name))

    def finished(self, wait: float = 0.0) -> list[tuple[str, bool]]:
        """Loads that have ended since the last call, in their order, each told once.

        With each, whether the page holds exactly what was saved. If not, it may hold anything.

        Args:
            wait: seconds to wait at most for a first one, if some are under way.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._ended or not self._loading, wait)
            ended, self._ended = self._ended, []
        return ended

    def discard(self, name: str) -> None:
        """Forget `name`, which need not be there."""
        assert NAME.fullmatch(name), name
        with self._lock:
            if self._last.pop(name, None):
                self._change(self._attempt, self._pages.remove, name)

    def close(self) -> None:
        """Put what waits. Loads that have not begun end as not found."""
        self._loads.shutdown(cancel_futures=True)
        self._changes.shutdown()
        self._pages.close()

    def _change(self, do: Callable[..., None], *args: object) -> None:
        """All changes are made in one thread, in their order."""
        self._changes.submit(do, *args).add_done_callback(Future.result)  # logs our mistakes

    def _put(self, name: str, saved: _Saved) -> None:
        assert saved.waiting is not None, name
        size = saved.waiting.nbytes
        try:
            if self._last.get(name) is saved:
                self._pages.put(name, saved.waiting)
        except OSError as error:
            self._drop("a page could not be saved: %s", error)
            with self._lock:
                if self._last.get(name) is saved:
                    del self._last[name]
            self._attempt(self._pages.remove, name)  # what an earlier save left
        finally:
            with self._lock:
                saved.waiting = None
                self._waiting_bytes -= size
                self._lock.notify_all()

    def _fill(self, name: str, saved: _Saved | None, page: np.ndarray) -> bool:
        if saved is None:
            return False
        problem = self._read(name, saved.waiting, page)
        with self._lock:
            if self._last.get(name) is not saved:  # what was read may be another save's
                return False
            if problem is None:
                self._change(self._attempt, self._pages.touch, name)
                return True
            self.discard(name)
        self._warn("a page could not be loaded and is removed: %s", problem)
        return False

    def _read(self, name: str, waiting: np.ndarray | None, page: np.ndarray) -> object | None:
        """Returns what went wrong."""
        try:
            filled = self._pages.get(name, page) if waiting is None else copied(waiting, page)
        except OSError as error:
            return error
        return None if filled else f"{name} is not what was saved"

    def _end(self, name: str, job: Future[bool]) -> None:
        filled = False
        try:
            filled = not job.cancelled() and job.result()  # raises, and so logs, our mistakes
        finally:
            with self._lock:
                self._loading -= 1
                self._ended.append((name, filled))
                self._lock.notify_all()

    def _attempt(self, change: Callable[[str], None], name: str) -> None:
        try:
            change(name)
        except OSError as error:
            self._warn("a page could not be removed or its use noted: %s", error)

    def _drop(self, message: str, *args: object) -> None:
        with self._lock:
            self.dropped += 1
        self._warn(message, *args)

    def _warn(self, message: str, *args: object) -> None:
        """Once for each message: a full disk would repeat it with every page."""
        with self._lock:
            known = message in self._warned
            self._warned.add(message)
        if not known:
            log.warning(message, *args)
