"""What all ops of a program are written with: buffers by role, weights by spec, rotary tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.models.spec import LinearSpec, NormSpec, ParamSpec, RopeSpec
from octavo.native.interface import Part, PlacedPart, Program
from octavo.native.kv import KV_FORMATS, KVMemory
from octavo.native.traced import TracedProgram
from octavo.native.weights import Weights


@dataclass(frozen=True, slots=True)
class Target:
    """A buffer, and whether to add to it."""

    buffer: int
    add: bool


class Emitter:
    """Writes ops into `program`. A buffer is a number; layers share them."""

    def __init__(
        self,
        program: Program | TracedProgram,
        hidden_size: int,
        weights: Weights,
        memory: KVMemory,
        kv_dtype: str,
        block_size: int,
    ) -> None:
        self.program = program
        self.weights = weights
        self.memory = memory
        self.kv_format = KV_FORMATS[kv_dtype]
        self.block_size = block_size
        self.hidden_size = hidden_size
        self._buffers: dict[tuple[str, int], int] = {}
        self._ropes: dict[RopeSpec, int] = {}

    def enter(self, layer: int | None) -> None:
        """What is written from now on is of this layer, or of none."""
        if isinstance(self.program, TracedProgram):
            self.program.layer = layer

    def buffer(self, role: str, width: int) -> int:
        """Buffers of one role and width are one: layers run one after another."""
        if (role, width) not in self._buffers:
            self._buffers[role, width] = self.program.buffer(width, False)
        return self._buffers[role, width]

    def part(self, spec: LinearSpec) -> Part:
        return self.weights.matrix(spec.weight), self.vector(spec.bias), spec.scale

    def placed(self, spec: LinearSpec, first: int, column: int) -> PlacedPart:
        """Reads columns from `first` on, writes from `column` on."""
        return (*self.part(spec), first, column)

    def linear(self, name: str, source: int, specs: Sequence[LinearSpec], to: Target) -> None:
        """Outputs side by side."""
        self.program.linear(name, to.buffer, source, [self.part(s) for s in specs], to.add)

    def linears(self, name: str, role: str, source: int, specs: Sequence[LinearSpec]) -> int:
        """The same into a buffer of their own."""
        to = self.buffer(role, sum(spec.out_features for spec in specs))
        self.linear(name, source, specs, Target(to, False))
        return to

    def norm(
        self,
        to: int,
        source: int,
        spec: NormSpec,
        *,
        add: bool = False,
        column: int = 0,
        columns: int | None = None,
    ) -> None:
        self.program.norm(
            "norm",
            to,
            source,
            self.norm_weight(spec),
            spec.eps,
            bias=self.vector(spec.bias),
            kind=spec.kind,
            groups=spec.groups,
            add=add,
            column=column,
            columns=columns,
        )

    def norm_weight(self, spec: NormSpec) -> np.ndarray | None:
        weight = self.vector(spec.weight)
        return weight if weight is None or spec.offset == 0.0 else weight + np.float32(spec.offset)

    def vector(self, spec: ParamSpec | None) -> np.ndarray | None:
        return self.weights.vector(spec) if spec else None

    def rope(self, spec: RopeSpec | None) -> int:
        """The table of rotary positions, made once a step; -1: none."""
        if spec is None:
            return -1
        if spec not in self._ropes:
            self._ropes[spec] = self.program.rope(list(spec.inv_freq), spec.attention_factor, 0)
        return self._ropes[spec]
