"""Who starts first, and who gives way: small choices behind one interface each."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from typing import Protocol

from octavo.base.request import Request
from octavo.core.sequence import Sequence

WIDTH = 16  # waiting sequences that `longest-prefix` compares; as often may one be passed over

Count = Callable[[Sequence], int]  # tokens


class QueueOrder(Protocol):
    """In which order waiting sequences start."""

    width: int  # sequences at the front of the queue that `pick` chooses from

    def rank(self, request: Request) -> int:
        """Smaller runs first and is preempted last; equals by arrival."""

    def pick(self, first: Several[Sequence], hit: Count) -> Sequence:
        """Of the first ones in order, the one to start; `hit` counts what the cache holds."""


class ByArrival:
    width = 1

    def rank(self, request: Request) -> int:
        return 0

    def pick(self, first: Several[Sequence], hit: Count) -> Sequence:
        return first[0]


class ByPriority(ByArrival):
    def rank(self, request: Request) -> int:
        return request.priority


class LongestPrefix(ByArrival):
    """Who shares most with the cache goes first, while it is still there (SGLang, arXiv
    2312.07104). The first in order is passed over only so often, so that nobody starves."""

    width = WIDTH

    def pick(self, first: Several[Sequence], hit: Count) -> Sequence:
        return first[0] if first[0].times_passed >= WIDTH else max(first, key=hit)


class Victim(Protocol):
    """Who gives its blocks when there are too few."""

    def pick(self, running: Several[Sequence], lost: Count) -> Sequence:
        """Of sequences in order; `lost` counts the tokens that only it has computed."""


class Latest:
    def pick(self, running: Several[Sequence], lost: Count) -> Sequence:
        return running[-1]


class Cheapest:
    """Fewest tokens lost; of equals the latest."""

    def pick(self, running: Several[Sequence], lost: Count) -> Sequence:
        return min(reversed(running), key=lost)


QUEUE_ORDERS: dict[str, Callable[[], QueueOrder]] = {
    "fcfs": ByArrival,
    "priority": ByPriority,
    "longest-prefix": LongestPrefix,
}
VICTIMS: dict[str, Callable[[], Victim]] = {"latest": Latest, "cheapest": Cheapest}
