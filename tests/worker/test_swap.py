"""A load gives what was saved last or nothing: any order of calls, random play, faults."""

from __future__ import annotations

import errno
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from swapping import SIZE, WAIT, A, B, C, Gated, found, open_pages, page

from octavo.worker.swap import SwapStore
from octavo.worker.swap_pages import MemoryPages, digest

both = pytest.mark.parametrize("kind", ["memory", "disk"])


@pytest.fixture(autouse=True)
def nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No thread lives on, and none met a mistake of ours: concurrent.futures would log it."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before
    assert not [r for r in caplog.get_records("call") if r.levelno >= logging.ERROR]


@pytest.fixture
def gated() -> Iterator[tuple[SwapStore, Gated]]:
    pages = Gated(MemoryPages())
    store = SwapStore(pages)
    yield store, pages
    pages.open()
    store.close()


def saved_and_put(store: SwapStore, pages: Gated, name: str, seed: int) -> None:
    """So that the next load has to `get` it."""
    store.save(name, page(seed))
    pages.reached["get"].clear()
    while not pages.reached["get"].is_set():
        assert found(store, name, seed)


@both
def test_what_was_saved_is_found_as_it_was_then(kind: str, tmp_path: Path) -> None:
    store = SwapStore(open_pages(kind, tmp_path / "swap"))
    kept = page(1)
    store.save(A, kept)
    kept[:] = 0
    store.save(B, page(2))
    assert found(store, A, 1) and found(store, B, 2) and not found(store, C, 3)
    store.save(A, page(4))
    store.discard(B)
    store.discard(C)
    assert found(store, A, 4) and not found(store, B, 2)
    assert store.names() == [] and store.dropped == 0
    store.close()


@pytest.mark.parametrize("name", ["", "a/b", "../a", "A", "g", "a.", "a\n", "a" * 201])
def test_other_names_are_refused(name: str, gated: tuple[SwapStore, Gated]) -> None:
    store, _ = gated
    with pytest.raises(AssertionError):
        store.save(name, page(1))
    with pytest.raises(AssertionError):
        store.load(name, page(1))
    with pytest.raises(AssertionError):
        store.discard(name)


@both
def test_a_page_of_another_size_is_not_filled(kind: str, tmp_path: Path) -> None:
    store = SwapStore(open_pages(kind, tmp_path / "swap"))
    for size in (SIZE - 1, SIZE + 1):
        store.save(A, page(1, size))
        assert not found(store, A, 1)
    store.close()


def test_a_load_finds_what_still_waits_to_be_put(gated: tuple[SwapStore, Gated]) -> None:
    store, pages = gated
    pages.stop("put")
    store.save(A, page(1))
    assert pages.reached["put"].wait(WAIT)
    store.save(B, page(2))
    assert found(store, A, 1) and found(store, B, 2)
    store.save(A, page(3))
    assert found(store, A, 3)
    store.discard(A)
    assert not found(store, A, 3)
    pages.open()
    assert not found(store, A, 3) and found(store, B, 2)


@pytest.mark.parametrize("again", [True, False])
def test_a_load_overtaken_by_a_save_or_discard_is_not_found(
    again: bool, gated: tuple[SwapStore, Gated]
) -> None:
    store, pages = gated
    saved_and_put(store, pages, A, 1)
    pages.stop("get")
    store.load(A, np.zeros(SIZE, np.uint8))
    assert pages.reached["get"].wait(WAIT)
    if again:
        store.save(A, page(2))
    else:
        store.discard(A)
    pages.open()
    assert store.finished(WAIT) == [(A, False)]
    assert found(store, A, 2) == again


def test_what_was_saved_over_or_discarded_while_it_waited_is_not_put(
    gated: tuple[SwapStore, Gated],
) -> None:
    store, pages = gated
    pages.stop("put")
    for name in (A, B, C, C):
        store.save(name, page(1))
    store.discard(B)
    pages.open()
    store.close()
    assert pages.puts == [A, C]


def test_what_was_discarded_while_it_was_being_put_is_gone(tmp_path: Path) -> None:
    pages = Gated(open_pages("disk", tmp_path / "swap"))
    store = SwapStore(pages)
    pages.stop("put")
    store.save(A, page(1))
    assert pages.reached["put"].wait(WAIT)
    store.discard(A)
    pages.open()
    store.close()
    assert [file.name for file in (tmp_path / "swap").iterdir()] == ["octavo.lock"]


def test_a_put_that_fails_loses_no_later_save() -> None:
    faults = [OSError(errno.EIO, "once")]

    def once(call: str) -> None:
        if call == "put" and faults:
            raise faults.pop()

    pages = Gated(MemoryPages(), once)
    store = SwapStore(pages)
    pages.stop("put")
    store.save(A, page(1))
    assert pages.reached["put"].wait(WAIT)
    store.save(A, page(2))
    pages.open()
    for _ in range(20):
        assert found(store, A, 2)
    store.close()
    assert not faults and store.dropped == 1


def test_finished_waits_only_for_loads_under_way(gated: tuple[SwapStore, Gated]) -> None:
    store, pages = gated
    assert store.finished(WAIT) == []
    saved_and_put(store, pages, A, 1)
    pages.stop("get")
    for _ in range(2):
        store.load(A, np.zeros(SIZE, np.uint8))
    assert store.finished() == [] and store.finished(0.01) == []
    pages.open()
    told = store.finished(WAIT)
    while len(told) < 2:
        told += store.finished(WAIT)
    assert told == [(A, True)] * 2 and store.finished(WAIT) == []


def test_saves_beyond_the_bound_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    pages = Gated(MemoryPages())
    store = SwapStore(pages, max_waiting_bytes=2 * SIZE)
    pages.stop("put")
    for name in (A, B, C, A):
        store.save(name, page(1))
    assert store.dropped == 2 and len(caplog.records) == 1
    assert not found(store, A, 1)  # not the first save either: it was not the last
    assert found(store, B, 1) and not found(store, C, 1)
    pages.open()
    while not found(store, C, 2):
        store.save(C, page(2))
    store.close()


def test_close_puts_what_waits_and_ends_loads(tmp_path: Path) -> None:
    pages = Gated(open_pages("disk", tmp_path / "swap"))
    store = SwapStore(pages)
    saved_and_put(store, pages, A, 1)
    pages.stop("get")
    pages.stop("put")
    store.save(B, page(2))
    for _ in range(3):
        store.load(A, np.zeros(SIZE, np.uint8))
    assert pages.reached["get"].wait(WAIT)
    threading.Timer(0.05, pages.open).start()
    store.close()
    assert store.finished() == [(A, False)] * 2 + [(A, True)]
    store = SwapStore(open_pages("disk", tmp_path / "swap"))
    assert found(store, A, 1) and found(store, B, 2)
    store.close()


def test_a_flipped_bit_in_memory_is_seen() -> None:
    pages, kept, target = MemoryPages(), page(1), page(2)
    pages.put(A, kept)
    assert pages.get(A, target) and np.array_equal(target, page(1))
    kept[SIZE // 2] ^= 4
    assert not pages.get(A, target)


def test_the_name_is_part_of_the_digest() -> None:
    assert digest(A, page(1)) == digest(A, page(1)) != digest(B, page(1))


@dataclass
class Loading:
    name: str
    target: np.ndarray
    expected: np.ndarray | None
    overtaken: bool = False  # by a save or discard


class Play:
    """Random calls, and what a dictionary says of them."""

    def __init__(self, store: SwapStore, rng: random.Random, faultless: bool) -> None:
        self.store, self.rng, self.faultless = store, rng, faultless
        self.saved: dict[str, np.ndarray] = {}
        self.loading: deque[Loading] = deque()
        self.hits = 0

    def call(self) -> None:
        name = f"{self.rng.randrange(12):x}-0"
        choice = self.rng.randrange(10)
        if choice < 3:
            self.overtake(name)
            self.saved[name] = page(self.rng.randrange(2**30), 500)
            self.store.save(name, self.saved[name].copy())
        elif choice < 8:
            self.loading.append(Loading(name, np.zeros(500, np.uint8), self.saved.get(name)))
            self.store.load(name, self.loading[-1].target)
        elif choice == 8:
            self.overtake(name)
            self.saved.pop(name, None)
            self.store.discard(name)
        else:
            self.check(self.store.finished())
        while len(self.loading) > 4:  # else, on a slow machine, nearly all would be overtaken
            self.check(self.store.finished(WAIT))

    def overtake(self, name: str) -> None:
        for loading in self.loading:
            loading.overtaken |= loading.name == name

    def check(self, told: list[tuple[str, bool]]) -> None:
        for name, filled in told:
            loading = self.loading.popleft()
            assert name == loading.name
            self.hits += filled
            if filled:
                assert loading.expected is not None
                assert np.array_equal(loading.target, loading.expected)
            elif self.faultless and not loading.overtaken:
                assert loading.expected is None

    def end(self) -> None:
        while self.loading:
            self.check(self.store.finished(WAIT))


class Chance:
    """Delays some calls, so that they meet in many ways, and lets some fail."""

    def __init__(self, seed: int, failing: float) -> None:
        self._rng, self._failing = random.Random(seed), failing

    def __call__(self, call: str) -> None:
        if self._rng.random() < 0.1:
            time.sleep(self._rng.random() / 1000)
        if self._rng.random() < self._failing:
            raise OSError(errno.EIO, f"{call} failed")


@both
@pytest.mark.parametrize("seed", range(3))
def test_random_play_against_a_dictionary(kind: str, seed: int, tmp_path: Path) -> None:
    def opened() -> SwapStore:
        return SwapStore(Gated(open_pages(kind, tmp_path / "swap"), Chance(seed, 0.0)))

    play = Play(opened(), random.Random(seed), faultless=True)
    for _ in range(8):
        for _ in range(500):
            play.call()
        play.end()
        play.store.close()
        if kind == "memory":
            play.saved.clear()
        play.store = opened()
        assert sorted(play.store.names()) == sorted((name, 500) for name in play.saved)
    assert play.hits > 500 and play.store.dropped == 0
    play.store.close()


@both
@pytest.mark.parametrize("seed", range(3))
def test_random_play_with_faults_never_gives_anything_wrong(
    kind: str, seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pages = Gated(open_pages(kind, tmp_path / "swap"), Chance(seed, 0.1))
    rng = random.Random(seed)
    play = Play(SwapStore(pages, max_waiting_bytes=4000), rng, faultless=False)
    for _ in range(4000):
        play.call()
        files = list(tmp_path.glob("swap/*.page"))
        if files and rng.random() < 0.05:
            damage(rng.choice(files), rng.randrange(500))
    play.end()
    play.store.close()
    assert play.hits > 100 and play.store.dropped > 20
    warnings = [record.msg for record in caplog.records]
    assert len(warnings) == len(set(warnings)) >= 3


def damage(file: Path, at: int) -> None:
    """In place, like a bad disk; the file may be about to go."""
    with suppress(FileNotFoundError), file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"wrong")
