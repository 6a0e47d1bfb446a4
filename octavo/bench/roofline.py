"""Where a step's time went, and how near the machine's limits that is.

A roofline (Williams, Waterman and Patterson, 2009): an op can be done no sooner than its
operations at the peak, nor than its bytes at the read bandwidth. Weights that stay in a cache
between steps may come in above the memory's bandwidth, and an op then passes 100 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.base.output import OpCost
from octavo.bench.limits import OPERANDS, buffers
from octavo.native.library import library

PROBE_SECONDS = 0.3


@dataclass(frozen=True)
class Limits:
    """Operations a second by operand, and bytes read a second."""

    peaks: dict[str, float]
    bandwidth: float

    @classmethod
    def measure(cls, threads: int) -> Limits:
        """Takes about a second."""
        native = library()
        return cls(
            {operand: native.peak(operand, threads, PROBE_SECONDS) for operand in OPERANDS},
            native.bandwidth(buffers(threads)["DRAM"], threads, PROBE_SECONDS),
        )

    def bound(self, cost: OpCost) -> float:
        """Seconds that the op would take at the limits."""
        multiplied = sum(count / self.peaks[name] for name, count in cost.operations.items())
        return max(multiplied, cost.bytes / self.bandwidth)

    def __str__(self) -> str:
        peaks = (f"{name} {rate / 1e9:.0f} Gop/s" for name, rate in self.peaks.items() if rate)
        return f"{', '.join(peaks)}, read {self.bandwidth / 1e9:.1f} GB/s"


def since(before: Sequence[OpCost], after: Sequence[OpCost]) -> list[OpCost]:
    """What came between two readings."""
    earlier = {cost.name: cost for cost in before}
    return [cost.minus(earlier[cost.name]) for cost in after]


def line(costs: Sequence[OpCost], limits: Limits) -> str:
    """One line: how much of the roofline the steps reached."""
    seconds = sum(cost.seconds for cost in costs)
    bound = sum(limits.bound(cost) for cost in costs)
    return (
        f"roofline: {bound / seconds:.0%}, {bound:.2f} s of {seconds:.2f} s in ops at the limits "
        f"({limits})"
    )


def table(costs: Sequence[OpCost], limits: Limits) -> str:
    """Time by op, the longest first, with what it reached."""
    whole = sum(cost.seconds for cost in costs)
    head = f"{'op':12}{'ms':>12}{'share':>8}{'Gop/s':>10}{'GB/s':>8}{'of limit':>10}"
    return "\n".join(
        [head, *(_row(c, whole, limits) for c in sorted(costs, key=lambda c: -c.seconds))]
    )


def _row(cost: OpCost, whole: float, limits: Limits) -> str:
    row = f"{cost.name:12}{1e3 * cost.seconds:>12.1f}{cost.seconds / whole:>8.1%}"
    if not cost.operations:
        return row
    rate = sum(cost.operations.values()) / cost.seconds / 1e9
    read = cost.bytes / cost.seconds / 1e9
    return f"{row}{rate:>10.1f}{read:>8.1f}{limits.bound(cost) / cost.seconds:>10.0%}"
