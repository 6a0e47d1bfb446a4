"""Each op of a program against its meaning in numpy, and the promise about its bits: a row's depend
on neither the rows beside it, nor the threads, nor what was never written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from octavo.layers.ops import ACTIVATIONS
from octavo.native.library import library, usable_variants

Op = Callable[[Any, int, int], None]  # adds ops that read and write two buffers: program, y, x


@pytest.fixture(scope="module", params=usable_variants())
def native(request: pytest.FixtureRequest) -> Any:
    return library(request.param)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def pack(native: Any, values: np.ndarray, format: str = "f32") -> Any:
    packed = native.Packed(format, *values.shape)
    if format == "int8":
        codes = np.rint(values * 30).clip(-127, 127).astype(np.int8)
        native.pack_int8(packed, codes, np.full(len(values), 1 / 30, np.float32), 0)
    elif format.startswith("q"):
        kind = GGMLQuantizationType[format.upper()]
        native.pack_blocks(packed, quantize(values, kind), 0)
    else:
        native.pack_float(packed, values, 0)
    return packed


def unpack(native: Any, packed: Any) -> np.ndarray:
    values = np.empty((packed.n, packed.k), np.float32)
    native.unpack(packed, 0, values)
    return values


class Rows:
    """A program over two buffers, y and x, that the test writes before it runs."""

    def __init__(self, native: Any, y: np.ndarray, x: np.ndarray, op: Op, threads: int = 2) -> None:
        self.program = program = native.Program(native.Pool(threads))
        program.embed(program.buffer(1, False), pack(native, np.zeros((1, 1), np.float32)))
        program.cut()
        self._tables = (y, x)
        self._buffers = [program.buffer(table.shape[1], False) for table in self._tables]
        op(program, *self._buffers)

    def run(self, ids: np.ndarray) -> np.ndarray:
        """y afterwards, of rows number `ids` of what was given."""
        take(self.program, np.zeros(len(ids), np.int32))
        for buffer, table in zip(self._buffers, self._tables, strict=True):
            self.program.rows(buffer)[:] = table[ids]
        self.program.start(1)
        self.program.wait()
        return self.program.rows(self._buffers[0]).copy()


def take(program: Any, ids: np.ndarray, **changes: Any) -> None:
    """A step of one row, of a model without attention."""
    count = len(ids)
    step = {
        "token_ids": ids,
        "positions": np.zeros((1, count), np.int64),
        "row_starts": np.array([0, count], np.int32),
        "context_lens": np.array([count], np.int32),
        "tables": [],
        "chosen": np.zeros(0, np.int64),
    }
    program.take(**(step | changes))


def check(
    native: Any, y: np.ndarray, x: np.ndarray, op: Op, wanted: np.ndarray, limit: float = 2e-6
) -> None:
    """The op's meaning, and that a row has the same bits in every batch."""
    ids = np.arange(len(x))
    whole = Rows(native, y, x, op)
    found = whole.run(ids)
    np.testing.assert_allclose(found, wanted, rtol=limit, atol=limit)
    for threads in (1, 3):
        again = Rows(native, y, x, op, threads)
        for part in (ids[:1], ids[::-1], ids[3:5], np.random.default_rng(1).permutation(ids)[:19]):
            np.testing.assert_array_equal(again.run(part), found[part])


# ---- norms ----


def norm(
    kind: str, x: np.ndarray, weight: Any = None, bias: Any = None, groups: int = 1
) -> np.ndarray:
    parts = x.astype(np.float64).reshape(len(x), groups, -1)
    if kind == "layer":
        parts = parts - parts.mean(-1, keepdims=True)
    parts = parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-5)
    weight, bias = (
        np.tile(values, groups) if values is not None and len(values) < x.shape[1] else values
        for values in (weight, bias)
    )
    out = parts.reshape(x.shape) * (1 if weight is None else weight)
    return out + (0 if bias is None else bias)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("size", [1, 7, 16, 48, 77])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_norm(native: Any, kind: str, size: int, biased: bool, add: bool) -> None:
    y, x = normal(40, size, seed=1), normal(40, size, seed=2) + 3
    weight = normal(size, seed=3) if biased else None
    bias = normal(size, seed=4) if biased else None
    wanted = norm(kind, x, weight, bias) + (y if add else 0)

    def op(program: Any, to: int, source: int) -> None:
        program.norm("n", to, source, weight, 1e-5, bias=bias, kind=kind, add=add)

    check(native, y, x, op, wanted, 1e-5)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_norm_of_some_columns_in_groups(
    native: Any, kind: str, shared: bool, in_place: bool
) -> None:
    y, x = normal(40, 70, seed=1), normal(40, 90, seed=2)
    weight, bias = normal(20 if shared else 60, seed=3), normal(60, seed=4)
    wanted = y.astype(np.float64)
    wanted[:, 5:65] = norm(kind, (y if in_place else x)[:, 5:65], weight, bias, groups=3)

    def op(program: Any, to: int, source: int) -> None:
        program.norm(
            "n", to, to if in_place else source, weight, 1e-5,
            bias=bias, kind=kind, groups=3, column=5, columns=60,
        )  # fmt: skip

    check(native, y, x, op, wanted, 1e-5)


# ---- functions of values ----


def activations() -> dict[str, Any]:
    return ACTIVATIONS | {
        "none": lambda a: a,
        "quick_gelu": lambda a: a * torch.sigmoid(1.702 * a),
        "relu": torch.relu,
        "relu2": lambda a: torch.relu(a) ** 2,
        "sigmoid": torch.sigmoid,
    }


@pytest.mark.parametrize("size", [1, 24, 77])
@pytest.mark.parametrize("activation", activations())
def test_activate(native: Any, activation: str, size: int) -> None:
    y, x = 3 * normal(40, size), normal(40, 1)
    wanted = activations()[activation](torch.from_numpy(y).double()).numpy()
    check(native, y, x, lambda p, to, _: p.activate("a", to, activation), wanted)


@pytest.mark.parametrize("activation", ["quick_gelu", "relu", "relu2", "sigmoid"])
def test_gated_by_other_activations(native: Any, activation: str) -> None:
    y, x = normal(20, 30), normal(20, 64, seed=1)
    gate, up = normal(30, 64, seed=2) / 8, normal(30, 64, seed=3) / 8
    bias = normal(30, seed=4)

    def op(program: Any, to: int, source: int) -> None:
        parts = (pack(native, gate), bias, 0.5), (pack(native, up), bias, -2.0)
        program.gated("g", to, source, *parts, activation)

    inner = torch.from_numpy(0.5 * (x.astype(np.float64) @ gate.T + bias))
    inner = activations()[activation](inner).numpy()
    check(native, y, x, op, inner * -2.0 * (x.astype(np.float64) @ up.T + bias), 1e-5)


@pytest.mark.parametrize("activation", ["none", "silu", "sigmoid"])
@pytest.mark.parametrize(("width", "column"), [(77, 0), (90, 11), (1, 0)])
def test_multiply(native: Any, activation: str, width: int, column: int) -> None:
    y, x = normal(40, 77), normal(40, width, seed=1)
    factor = x if width == 1 else x[:, column : column + 77]
    wanted = y * activations()[activation](torch.from_numpy(factor).double()).numpy()
    check(
        native, y, x, lambda p, to, s: p.multiply("m", to, s, activation, column=column), wanted
    )  # fmt: skip


def test_soft_cap(native: Any) -> None:
    y = np.concatenate([normal(20, 77), 100 * normal(20, 77, seed=1)])
    wanted = 30 * np.tanh(y.astype(np.float64) / 30)
    check(native, y, y, lambda p, to, _: p.soft_cap("c", to, 30.0), wanted, 1e-5)


@pytest.mark.parametrize("op", ["soft_cap", "activate", "multiply"])
def test_what_is_no_number_stays(native: Any, op: str) -> None:
    """So that nobody takes what went wrong for a result."""
    y, x = normal(4, 19), normal(4, 19)
    (y if op != "multiply" else x)[2, 5] = np.nan

    def add(program: Any, to: int, source: int) -> None:
        if op == "soft_cap":
            program.soft_cap("c", to, 30.0)
        elif op == "multiply":
            program.multiply("m", to, source, "sigmoid")
        else:
            for name in activations():
                program.activate("a", to, name)

    assert np.argwhere(np.isnan(Rows(native, y, x, add).run(np.arange(4)))).tolist() == [[2, 5]]


def test_copy_and_add(native: Any) -> None:
    y, x = normal(40, 50), normal(40, 37, seed=1)
    wanted = y.copy()
    wanted[:, 20:29] = x[:, 5:14]
    check(
        native, y, x,
        lambda p, to, s: p.copy("c", to, s, column=20, source_column=5, columns=9), wanted,
    )  # fmt: skip
    wanted[:, 20:29] = y[:, 20:29]
    wanted[:, 13:] = x
    check(native, y, x, lambda p, to, s: p.copy("c", to, s, column=13), wanted)
    other = normal(40, 50, seed=2)
    check(native, y, other, lambda p, to, s: p.add("a", to, s), y + other)


def test_embeddings_are_scaled_but_given_ones_are_not(native: Any) -> None:
    table, given = normal(9, 21), normal(2, 21, seed=1)
    program = native.Program(native.Pool(1))
    x = program.buffer(21, False)
    program.embed(x, pack(native, table), 4.5)
    take(program, np.array([3, -1], np.int32), embeddings=given)
    program.start(0)
    program.wait()
    np.testing.assert_array_equal(program.rows(x), [table[3] * np.float32(4.5), given[1]])


# ---- linears ----

BLOCKS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")


def product(native: Any, packed: Any, x: np.ndarray) -> np.ndarray:
    """x W^T by the kernel itself, whose own tests say what it means."""
    y = np.empty((len(x), packed.n), np.float32)
    native.linear(native.Pool(1), [(packed, None)], np.ascontiguousarray(x), y)
    return y


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("format", ["f32", "bf16", "int8", "q4_1", "q8_0"])
def test_outputs_are_scaled_after_their_bias(native: Any, format: str, add: bool) -> None:
    y, x = normal(210, 57), normal(210, 96, seed=1)
    weights = [pack(native, normal(n, 96, seed=n) / 8, format) for n in (40, 17)]
    bias = normal(40, seed=2)
    first = (product(native, weights[0], x) + bias) * np.float32(0.3)
    wanted = np.concatenate([first, product(native, weights[1], x) * np.float32(-2)], axis=1)

    def op(program: Any, to: int, source: int) -> None:
        parts = [(weights[0], bias, 0.3), (weights[1], None, -2.0)]
        program.linear("l", to, source, parts, add)

    found = Rows(native, y, x, op).run(np.arange(210))
    np.testing.assert_array_equal(found, y + wanted if add else wanted)


@pytest.mark.parametrize("format", ["f32", "bf16", "f16", *BLOCKS])
@pytest.mark.parametrize("heads", [2, 64])
def test_parts_read_and_write_columns_of_their_own(native: Any, format: str, heads: int) -> None:
    """A matrix for each head: only blocks on the diagonal. What lies beside may be no number."""
    inner, outer, step = 96, 20, 33
    weights = [pack(native, normal(outer, 64, seed=h) / 8, format) for h in range(heads)]
    y, x = normal(200, heads * step), normal(200, heads * inner, seed=1)
    x[:, 64:96] = np.nan  # of the first head, never read
    wanted = y.copy()
    for h, weight in enumerate(weights):
        read = slice(h * inner, h * inner + 64)
        wanted[:, h * step : h * step + outer] = product(native, weight, x[:, read])

    def op(program: Any, to: int, source: int) -> None:
        parts = [(w, None, 1.0, h * inner, h * step) for h, w in enumerate(weights)]
        program.linear("l", to, source, parts[::-1], False)

    check(native, y, x, op, wanted, 0)


def test_floats_read_any_even_columns(native: Any) -> None:
    """Whatever lies behind them in the row, or in the next one."""
    x = normal(20, 75)
    x[:, 16] = np.nan
    weights = [pack(native, normal(9, k, seed=k)) for k in (6, 75 - 18)]
    reads = [x[:, 10:16], x[:, 18:75]]
    parts = [product(native, w, part) for w, part in zip(weights, reads, strict=True)]

    def op(program: Any, to: int, source: int) -> None:
        placed = [(weights[0], None, 1.0, 10, None), (weights[1], None, 1.0, 18, None)]
        program.linear("l", to, source, placed, False)

    check(native, normal(20, 18), x, op, np.concatenate(parts, axis=1), 0)


def test_int8_weights_read_whole_rows_into_any_columns(native: Any) -> None:
    y, x = normal(20, 40), normal(20, 64, seed=1)
    weight = pack(native, normal(10, 64, seed=2) / 8, "int8")
    wanted = y.copy()
    wanted[:, 7:17] = product(native, weight, x)

    def op(program: Any, to: int, source: int) -> None:
        program.linear("l", to, source, [(weight, None, 1.0, 0, 7)], False)

    check(native, y, x, op, wanted, 0)


def test_the_work_of_parts_is_counted(native: Any) -> None:
    weights = [pack(native, normal(20, 64, seed=h)) for h in range(3)]

    def op(program: Any, to: int, source: int) -> None:
        parts = [(w, None, 1.0, 32 * h, None) for h, w in enumerate(weights)]
        program.linear("l", to, source, parts, False)

    rows = Rows(native, normal(5, 60), normal(5, 128), op)
    rows.run(np.arange(5))
    (_, work, read) = {name: rest for name, *rest in rows.program.costs()}["l"]
    assert (work, read) == ({"f32": 2 * 5 * 3 * 20 * 64}, sum(w.nbytes for w in weights))


# ---- forms: a linear reads what was written last ----


WRITERS: dict[str, Op] = {
    "norm": lambda p, y, x: p.norm("n", y, x, None, 1e-5),
    "part of a norm, in place": lambda p, y, x: p.norm("n", y, y, None, 1e-5, columns=32),
    "activate": lambda p, y, x: p.activate("a", y, "silu"),
    "multiply": lambda p, y, x: p.multiply("m", y, x, "sigmoid"),
    "soft_cap": lambda p, y, x: p.soft_cap("s", y, 0.5),
    "copy": lambda p, y, x: p.copy("c", y, x, column=32, columns=16),
    "add": lambda p, y, x: p.add("a", y, x),
}


@pytest.mark.parametrize("writer", [*WRITERS, "linear"])
@pytest.mark.parametrize("format", ["q4_0", "q8_0", "int8"])
def test_a_linear_reads_what_was_written_last(native: Any, format: str, writer: str) -> None:
    """Even where another linear had read the buffer before, and had it converted."""
    y, x = normal(20, 40), normal(20, 64, seed=1)
    square, blocks = pack(native, normal(24, 64, seed=2)), pack(native, normal(40, 64), format)

    def op(program: Any, to: int, source: int) -> None:
        a, first = (program.buffer(width, False) for width in (64, 40))
        program.norm("n", a, source, None, 1e-5)
        program.linear("l", first, a, [(blocks, None, 1.0)], False)
        if writer == "linear":
            program.linear("w", a, source, [(square, None, 1.0, 0, 8)], False)
        else:
            WRITERS[writer](program, a, source)
        program.linear("l", to, a, [(blocks, None, 1.0)], False)
        buffers.append(a)

    buffers: list[int] = []
    rows = Rows(native, y, x, op)
    found = rows.run(np.arange(20))
    np.testing.assert_array_equal(found, product(native, blocks, rows.program.rows(buffers[0])))
