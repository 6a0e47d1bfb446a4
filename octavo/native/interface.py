"""What the native library offers Python, as types: csrc/bind_*.cpp in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np

# A linear's weights, bias and scale; the same, the first column of its input that it reads, and the
# column where its outputs go: None is behind the part before.
Part = tuple["Packed", np.ndarray | None, float]
PlacedPart = tuple["Packed", np.ndarray | None, float, int, int | None]
ExpertLinear = tuple["Packed", np.ndarray | None]  # weights and bias of one expert


class Sampler(Protocol):
    def sample(
        self,
        logits: np.ndarray,
        work: np.ndarray,
        controls: np.ndarray,
        masks: np.ndarray,
        ids: np.ndarray,
        edits: np.ndarray,
        drawn: np.ndarray,
        likely: np.ndarray,
    ) -> None:
        """Arrays of the structs in csrc/sample.h, their fields as float64 columns."""


class Pool(Sampler, Protocol):
    """Threads that run one job together."""

    threads: int


class Packed(Protocol):
    """A linear's weights [n, k] in the kernels' layout."""

    format: str
    n: int
    k: int
    nbytes: int
    data: np.ndarray  # uint8 [nbytes], writable, no copy


class Memory(Protocol):
    """Bytes on huge pages, zero at first."""

    nbytes: int
    data: np.ndarray  # uint8 [nbytes], writable, no copy


class Program(Protocol):
    """A step as a list of ops over buffers; see csrc/program.h."""

    segments: int

    def buffer(self, width: int, chosen: bool) -> int:
        """Rows of `width` float32, one for each token of a step, or each chosen one."""

    def rope(self, inv_freq: Sequence[float], factor: float, axis: int) -> int:
        """cos and sin of a step's positions; what `attention` takes as `rope`."""

    def embed(self, to: int, table: Packed, scale: float = 1.0) -> None:
        """A token's row of the table, times `scale`, or its row of `embeddings` as it is."""

    def norm(
        self,
        name: str,
        to: int,
        source: int,
        weight: np.ndarray | None,
        eps: float,
        *,
        bias: np.ndarray | None = None,
        kind: str = "rms",
        groups: int = 1,
        add: bool = False,
        column: int = 0,
        columns: int | None = None,
    ) -> None:
        """RMSNorm ("rms") or LayerNorm ("layer") of `columns` columns from `column` on, in `groups`
        equal parts, into the same columns of `to`, which may be `source`. Weight and bias are of
        all columns, or of one part."""

    def linear(
        self, name: str, to: int, source: int, parts: Sequence[Part | PlacedPart], add: bool
    ) -> None:
        """scale * (x W^T + bias) of each part, or +=. A part reads all columns of `source`, or as
        many as it has inputs from its first on, a multiple of 32. Outputs fill `to`, unless they
        were placed."""

    def gated(self, name: str, to: int, source: int, gate: Part, up: Part, activation: str) -> None:
        """activation(gate) * up. Activations are "none", "silu", "gelu", "gelu_tanh",
        "quick_gelu", "relu", "relu2" and "sigmoid"."""

    def activate(self, name: str, buffer: int, activation: str) -> None:
        """In place."""

    def multiply(
        self, name: str, to: int, source: int, activation: str, *, column: int = 0
    ) -> None:
        """Column j of `to` *= the activation of column `column` + j of `source`, or of its only
        one."""

    def soft_cap(self, name: str, buffer: int, cap: float) -> None:
        """x := cap * tanh(x / cap), in place."""

    def copy(
        self,
        name: str,
        to: int,
        source: int,
        *,
        column: int = 0,
        source_column: int = 0,
        columns: int | None = None,
    ) -> None: ...

    def add(self, name: str, to: int, source: int) -> None:
        """`to` += `source`"""

    def attention(
        self,
        to: int,
        source: int,
        *,
        memory: Memory,
        page_bytes: int,
        k_offset: int,
        v_offset: int,
        block_size: int,
        kv_format: str,
        group: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        v_head_dim: int,
        scale: float,
        window: int = 0,
        chunk: int = 0,
        soft_cap: float = 0.0,
        sinks: np.ndarray | None = None,
        rope: int = -1,
        q_norm: tuple[np.ndarray | None, float] | None = None,
        k_norm: tuple[np.ndarray | None, float] | None = None,
        norm_after_rope: bool = False,
        temper: tuple[float, float, float] | None = None,
        value_column: int | None = None,
    ) -> None:
        """`source` is q, k and v side by side. A token sees the last `window` tokens, itself too,
        or those back to a multiple of `chunk`. Norms are RMSNorms over heads: weight and eps.

        `temper` (scale, length, offset): q at position p is multiplied by
        1 + scale * log(floor((p + offset) / length) + 1) at last.

        `value_column`: V is `v_head_dim` columns of K from there on. Then neither `source` nor the
        pages have it, and `v_offset` says nothing."""

    def route(
        self,
        name: str,
        source: int,
        *,
        top_k: int,
        scoring: str,
        normalise: bool,
        eps: float = 1e-20,
        scale: float = 1.0,
        bias: np.ndarray | None = None,
        groups: int = 1,
        top_groups: int = 1,
        group_score: str = "max",
    ) -> int:
        """Which experts each token goes to, by its logits in `source`; what `experts` takes as
        `routes`. See csrc/routes.h for the names of `scoring` and `group_score`."""

    def experts(
        self,
        name: str,
        to: int,
        source: int,
        routes: int,
        gates: Sequence[ExpertLinear],
        ups: Sequence[ExpertLinear],
        downs: Sequence[ExpertLinear],
        activation: str,
        *,
        limit: float = 0.0,
        shift: float = 0.0,
        weigh_input: bool = False,
    ) -> None:
        """Adds each token's experts to its row of `to`; without gates, down(activation(up)).
        `limit` and `shift`: csrc/gating.h. The weight is of the output, or of the input."""

    # Ops with a state, all of it float32: `offset` is where a layer's part begins in a page, in
    # bytes, and `take` has a table [R, 2] for `group`: the page of each row's state before the
    # step, 0 where there is none yet, and another one for the state after it.

    def convolve(
        self,
        name: str,
        to: int,
        source: int,
        *,
        memory: Memory,
        page_bytes: int,
        offset: int,
        group: int,
        weight: np.ndarray,
        bias: np.ndarray | None = None,
        activation: str = "none",
        column: int = 0,
    ) -> None:
        """`to` [C] := the causal convolution of columns of `source` from `column` on, each alone,
        with `weight` [C, L], L in 2..8, and `bias` [C]; then `activation`, "none" or "silu". The
        state is L - 1 inputs."""

    def scan_mamba2(
        self,
        name: str,
        to: int,
        source: int,
        steps: int,
        *,
        memory: Memory,
        page_bytes: int,
        offset: int,
        group: int,
        heads: int,
        head_dim: int,
        state_size: int,
        groups: int,
        a: np.ndarray,
        d: np.ndarray | None = None,
        dt_bias: np.ndarray | None = None,
        dt_limits: tuple[float, float],
    ) -> None:
        """`source` holds x [heads, head_dim], B and C [groups, state_size]; `a` [heads] is
        negative, `d` is [heads] or [heads * head_dim]. `steps` [heads] are changed in place. The
        state has heads * head_dim * state_size numbers."""

    def scan_mamba1(
        self,
        name: str,
        to: int,
        source: int,
        steps: int,
        bc: int,
        *,
        memory: Memory,
        page_bytes: int,
        offset: int,
        group: int,
        a: np.ndarray,
        d: np.ndarray,
    ) -> None:
        """`source` holds x [inner], `bc` B and C [state_size]; `a` [inner, state_size] is
        negative, `d` is [inner]. `steps` [inner], their bias added, are changed in place. The
        state has inner * state_size numbers."""

    def gated_delta(
        self,
        name: str,
        to: int,
        source: int,
        decay: int,
        beta: int,
        *,
        memory: Memory,
        page_bytes: int,
        offset: int,
        group: int,
        key_heads: int,
        value_heads: int,
        key_dim: int,
        value_dim: int,
        a: np.ndarray,
        dt_bias: np.ndarray | None = None,
        beta_scale: float = 1.0,
    ) -> None:
        """`source` holds q and k [key_heads, key_dim] and v [value_heads, value_dim]; `decay` is
        one a value head, or for each of its key channels too, and so is `dt_bias`; `a`
        [value_heads] is negative. `decay`, `beta` [value_heads], q and k are changed in place. The
        state has value_heads * key_dim * value_dim numbers."""

    def choose(self, name: str, to: int, source: int) -> None: ...

    def cut(self) -> None:
        """End a segment: the caller may read and change buffers before it starts the next."""

    def take(
        self,
        *,
        token_ids: np.ndarray,
        positions: np.ndarray,
        row_starts: np.ndarray,
        context_lens: np.ndarray,
        tables: Sequence[np.ndarray],
        chosen: np.ndarray,
        embeddings: np.ndarray | None = None,
    ) -> None:
        """A step's arrays: int32 [T], int64 [axes, T], int32 [R + 1], int32 [R], int32
        [R, blocks] for each KV group, int64 [S], float32 [T, hidden]. A token id below 0 takes
        its row of `embeddings`."""

    def start(self, segment: int) -> None:
        """Begin a segment on the pool's threads and return at once."""

    def wait(self) -> None:
        """Until the segment is done; without the interpreter lock."""

    def rows(self, buffer: int) -> np.ndarray:
        """float32 [rows, width], a view that holds until the next `take`."""

    def costs(self) -> list[tuple[str, float, dict[str, float], float]]:
        """What ops have cost since the program was made, by name: (name, seconds, operations by
        operand as in `Native.peak`, bytes of weights and KV read)."""


# Within Native these names are the makers.
_Pool: TypeAlias = Pool
_Packed: TypeAlias = Packed
_Memory: TypeAlias = Memory
_Program: TypeAlias = Program


class Native(Protocol):
    """One variant of the library."""

    variant: str

    def cpu_variants(self) -> list[str]:
        """Variants that this CPU can run, built or not, the best last."""

    def Pool(self, threads: int) -> _Pool: ...

    def Packed(self, format: str, n: int, k: int) -> _Packed: ...

    def Memory(self, nbytes: int) -> _Memory: ...

    def Program(self, pool: _Pool) -> _Program: ...

    def packed_together(self, format: str, n: int, k: int, count: int) -> list[_Packed]:
        """Matrices of one shape in one memory, on huge pages even where each is small."""

    def panel_bytes(self, format: str, k: int) -> int:
        """Bytes that 16 outputs of `k` inputs take."""

    def peak(self, operand: str, threads: int, seconds: float) -> float:
        """Multiply-adds of "f32", "bf16", "int8" or "int16": operations a second, a multiply-add
        being two; 0 where the instruction set has none of them."""

    def bandwidth(self, bytes: int, threads: int, seconds: float) -> float:
        """Bytes read a second, by all threads, of `bytes` that are read over and over."""

    def pack_float(self, packed: _Packed, rows: np.ndarray, first_row: int) -> None:
        """Rows of float32 [m, k], or 16-bit floats of the same format as bits."""

    def unpack(self, packed: _Packed, first_row: int, values: np.ndarray) -> None:
        """float32 [m, k] := the weights of m outputs."""

    def pack_blocks(self, packed: _Packed, rows: np.ndarray, first_row: int) -> None:
        """Rows as GGUF packs them, uint8 [m, bytes]."""

    def pack_int8(
        self, packed: _Packed, codes: np.ndarray, scales: np.ndarray, first_row: int
    ) -> None:
        """Rows of int8 [m, k] with a float32 scale each, [m]."""
