"""Who starts next, whether there is a place and memory for it, and who gives way to it."""

from __future__ import annotations

from typing import Literal

from octavo.core.kv_manager import KVManager
from octavo.core.policies import QueueOrder
from octavo.core.roster import Roster
from octavo.core.sequence import Sequence


class Admission:
    """Decides about sequences that wait.

    Args:
        most: sequences that may run at once.
        watermark: share of the blocks that stays free, while somebody computes.
    """

    def __init__(
        self, roster: Roster, manager: KVManager, order: QueueOrder, most: int, watermark: float
    ) -> None:
        self.whom: Literal["all", "begun", "nobody"] = "all"  # may start
        self._roster = roster
        self._manager = manager
        self._order = order
        self._most = most
        self._watermark = watermark

    def next(self) -> Sequence | None:
        """A beam that others wait for, else as the policy says."""
        waiting = self._roster.waiting
        for running in self._roster.running:
            if running.is_idle:
                for beam in running.state.alive.values():
                    if beam in waiting:
                        return beam
        if self.whom == "all":
            return self._order.pick(waiting.first(self._order.width), self._manager.count_hit)
        everyone = waiting.first(len(waiting)) if self.whom == "begun" else []
        return next((s for s in everyone if s.state.has_begun), None)

    def admit(self, sequence: Sequence) -> bool:
        """Give it what the cache holds of it, if there is a place and memory for all that is known;
        False, with nothing changed, else."""
        taken = sum(self._places_of(running) for running in self._roster.running)
        if taken + self._places_of(sequence) > self._most:
            return False
        return self._manager.admit(sequence, 0.0 if self._all_wait() else self._watermark)

    def in_the_way(self, sequence: Sequence) -> list[Sequence]:
        """Who must give way to one that was not admitted: where all that run wait for beams that
        wait, the last of another request. These beams alone may hold a second copy of what they
        share. Nobody where somebody computes, or none runs."""
        if not self._all_wait():
            return []
        others = [s for s in self._roster.running if s.state is not sequence.state]
        return others[-1:] or list(self._roster.running)

    def _all_wait(self) -> bool:
        return all(running.is_idle for running in self._roster.running)

    def _places_of(self, sequence: Sequence) -> int:
        return min(1 + sequence.state.unborn, self._most)
