"""A program that can be watched: each op is a segment of its own, and what it writes is noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from octavo.native.interface import Program

# Where the buffer that an op writes stands among its arguments. `route` writes none.
WRITTEN = {
    "embed": 0,
    "attention": 0,
    "norm": 1,
    "linear": 1,
    "gated": 1,
    "activate": 1,
    "multiply": 1,
    "soft_cap": 1,
    "copy": 1,
    "add": 1,
    "experts": 1,
    "convolve": 1,
    "scan_mamba1": 1,
    "scan_mamba2": 1,
    "gated_delta": 1,
    "choose": 1,
}


@dataclass(frozen=True, slots=True)
class TracedOp:
    """The op that a segment ends with."""

    segment: int
    layer: int | None  # None: in front of all layers, or behind them
    name: str
    buffer: int  # that it writes
    chosen: bool  # which has rows for chosen tokens only

    def __str__(self) -> str:
        return f"op {self.name}" if self.layer is None else f"layer {self.layer}, op {self.name}"


class TracedProgram:
    """Behaves as the program that it writes to."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.layer: int | None = None  # of the ops that come
        self.ops: list[TracedOp] = []
        self._chosen: dict[int, bool] = {}  # by buffer

    def buffer(self, width: int, chosen: bool) -> int:
        made = self._program.buffer(width, chosen)
        self._chosen[made] = chosen
        return made

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._program, name)
        return self._traced(name, method) if name in WRITTEN else method

    def _traced(self, name: str, method: Callable[..., None]) -> Callable[..., None]:
        at = WRITTEN[name]

        def write(*args: Any, **options: Any) -> None:
            method(*args, **options)
            buffer, segment = args[at], self._program.segments - 1
            own = args[0] if at else name
            self.ops.append(TracedOp(segment, self.layer, own, buffer, self._chosen[buffer]))
            self._program.cut()

        return write
