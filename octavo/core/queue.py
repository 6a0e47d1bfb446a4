"""Who waits, in order. A preempted sequence keeps its order, so it is first again."""

from __future__ import annotations

import heapq

from octavo.core.sequence import Sequence


class WaitingQueue:
    """Sequences by their order. Removal from the middle is lazy: O(log n) amortised."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int, int], int]] = []
        self._waiting: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.sequence_id in self._waiting

    def push(self, sequence: Sequence) -> None:
        assert sequence.sequence_id not in self._waiting, sequence.sequence_id
        heapq.heappush(self._heap, (sequence.order, sequence.sequence_id))
        self._waiting[sequence.sequence_id] = sequence

    def first(self, count: int) -> list[Sequence]:
        """The first in order, `count` at most; the queue must not be empty."""
        while self._heap[0][1] not in self._waiting:
            heapq.heappop(self._heap)
        if count == 1:
            return [self._waiting[self._heap[0][1]]]
        return heapq.nsmallest(count, self._waiting.values(), key=lambda s: s.order)

    def remove(self, sequence: Sequence) -> bool:
        """Take `sequence` out, wherever it stands; False where it does not wait."""
        removed = self._waiting.pop(sequence.sequence_id, None) is not None
        if len(self._heap) > 2 * len(self._waiting) + 64:  # a server lives long: drop the dead
            self._heap = [entry for entry in self._heap if entry[1] in self._waiting]
            heapq.heapify(self._heap)
        return removed
