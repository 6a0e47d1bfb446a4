"""What the next plan moves: copies of blocks, and blocks that go to the swap tier or come back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import msgspec

from octavo.base.plan import Copy, Move, StepPlan
from octavo.core.prefix import Prefix
from octavo.core.sequence import Sequence
from octavo.core.swap import SwapDirectory


@dataclass(frozen=True, slots=True)
class Load:
    """A block that comes back from the swap tier, and who waits for it."""

    sequence: Sequence
    life: int  # the sequence's, when it began to wait
    prefix: Prefix
    group: int
    number: int  # of the block in the prefix
    block: int

    @property
    def name(self) -> str:
        return swap_name(self.group, self.prefix.digest(self.number + 1))

    @property
    def is_awaited(self) -> bool:
        return bool(self.sequence.tables) and self.sequence.life == self.life


class Moves:
    """Gathers moves while a step is planned; keeps count of loads until they end.

    `directory`: what the swap tier holds; None where there is no such tier.
    """

    def __init__(self, directory: SwapDirectory | None) -> None:
        self.directory = directory
        self._copies: list[Copy] = []
        self._saves: list[Move] = []
        self._loads: list[Move] = []
        self._discards: list[str] = []
        self._under_way: dict[str, deque[Load]] = {}  # by name, in the order in which they began

    @property
    def is_loading(self) -> bool:
        return bool(self._under_way)

    def copy(self, pool: int, source: int, target: int) -> None:
        self._copies.append(Copy(pool, source, target))

    def save(self, pool: int, block: int, name: str, size: int) -> None:
        """Keep a block's content, unless it is kept already."""
        if self.directory is not None and self.directory.put(name, size):
            self._saves.append(Move(pool, block, name))

    def has(self, name: str) -> bool:
        return self.directory is not None and name in self.directory

    def load(self, load: Load, pool: int) -> None:
        assert self.directory is not None
        name = load.name
        self.directory.load(name)
        self._under_way.setdefault(name, deque()).append(load)
        self._loads.append(Move(pool, load.block, name))

    def loaded(self, name: str, intact: bool) -> Load:
        """The first load of this name has ended."""
        assert self.directory is not None
        self.directory.loaded(name, intact)
        waiting = self._under_way[name]
        load = waiting.popleft()
        if not waiting:
            del self._under_way[name]
        return load

    def forget(self) -> None:
        """Nothing that was kept may be found again; nothing is being loaded."""
        self._saves.clear()
        if self.directory is not None:
            self._discards += self.directory.clear()

    def complete(self, plan: StepPlan) -> StepPlan:
        """The plan with all that was gathered since the last one."""
        if self.directory is not None:
            self._discards += self.directory.shrink()
        plan = msgspec.structs.replace(
            plan,
            copies=self._copies,
            saves=self._saves,
            loads=self._loads,
            discards=self._discards,
        )
        self._copies, self._saves, self._loads, self._discards = [], [], [], []
        return plan


def swap_name(group: int, digest: bytes) -> str:
    """Of a full block in the swap tier."""
    return f"{digest.hex()}-{group}"
