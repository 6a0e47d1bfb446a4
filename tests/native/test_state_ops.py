"""Ops with a state: each against a twin in float64, and the same bits however a sequence is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from state_twins import Arrays, convolution, gated_delta, mamba1, mamba2

from octavo.native.library import library, usable_variants

VARIANTS = usable_variants()
PAGES = 12
OFFSET = 64  # bytes: other layers' parts lie around this one's
RNG = np.random.default_rng


def normal(*shape: int, seed: int) -> np.ndarray:
    return RNG(seed).standard_normal(shape, np.float32)


def rates(*shape: int, seed: int) -> np.ndarray:
    return -RNG(seed).uniform(0.05, 4, shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An op with its settings, and its twin."""

    method: str
    twin: Callable[..., np.ndarray]
    inputs: tuple[tuple[str, int], ...]  # (keyword, width)
    width: int
    floats: int
    settings: dict[str, Any]

    def sequence(self, length: int, seed: int) -> Arrays:
        return {
            name: normal(length, width, seed=seed + i)
            for i, (name, width) in enumerate(self.inputs)
        }

    def expected(self, inputs: Arrays) -> np.ndarray:
        return self.twin(**inputs, **self.settings)


def convolution_case(channels: int, taps: int, **more: Any) -> Case:
    settings = {"weight": normal(channels, taps, seed=1), **more}
    inputs = (("source", channels + 2 * more.get("column", 0)),)
    return Case("convolve", convolution, inputs, channels, (taps - 1) * channels, settings)


def mamba2_case(heads: int, dim: int, state: int, groups: int, **more: Any) -> Case:
    settings = {
        "heads": heads,
        "head_dim": dim,
        "state_size": state,
        "groups": groups,
        "a": rates(heads, seed=2),
        "dt_limits": (0.0, float("inf")),
        **more,
    }
    inner = heads * dim
    inputs = (("source", inner + 2 * groups * state), ("steps", heads))
    return Case("scan_mamba2", mamba2, inputs, inner, inner * state, settings)


def mamba1_case(inner: int, state: int) -> Case:
    settings = {"a": rates(inner, state, seed=3), "d": normal(inner, seed=4)}
    inputs = (("source", inner), ("steps", inner), ("bc", 2 * state))
    return Case("scan_mamba1", mamba1, inputs, inner, inner * state, settings)


def delta_case(
    key_heads: int, heads: int, key_dim: int, dim: int, decays: int, **more: Any
) -> Case:
    settings = {
        "key_heads": key_heads,
        "value_heads": heads,
        "key_dim": key_dim,
        "value_dim": dim,
        "a": rates(heads, seed=5),
        **more,
    }
    qkv = 2 * key_heads * key_dim + heads * dim
    inputs = (("source", qkv), ("decay", decays), ("beta", heads))
    return Case("gated_delta", gated_delta, inputs, heads * dim, heads * key_dim * dim, settings)


CASES = {
    "convolution": convolution_case(300, 4, bias=normal(300, seed=6), activation="silu"),
    "convolution, a part": convolution_case(40, 3, column=24),
    "convolution, 2 taps": convolution_case(7, 2),
    "convolution, 8 taps": convolution_case(128, 8),
    "mamba2": mamba2_case(
        4, 64, 32, 2, d=normal(4, seed=7), dt_bias=normal(4, seed=8), dt_limits=(0.01, 2.0)
    ),
    "mamba2, wide": mamba2_case(1, 128, 128, 1, d=normal(128, seed=9)),
    "mamba2, odd": mamba2_case(6, 40, 9, 3),
    "mamba2, tiny": mamba2_case(2, 8, 16, 1, d=normal(2, seed=7)),
    "mamba1": mamba1_case(96, 16),
    "mamba1, odd": mamba1_case(50, 5),
    "delta": delta_case(2, 4, 64, 64, 4, dt_bias=normal(4, seed=10)),
    "delta, odd": delta_case(1, 3, 20, 35, 3, beta_scale=2.0),
    "delta, tiny": delta_case(2, 2, 8, 8, 2),
    "delta by channel": delta_case(2, 2, 32, 48, 64, dt_bias=normal(64, seed=11)),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_variant = pytest.mark.parametrize("variant", VARIANTS)

Row = tuple[Arrays, int, int]  # inputs, the page of the state before, the page for the one after


class Layer:
    """A program of one op, and a pool of states that hold NaN until they are written."""

    def __init__(self, variant: str, case: Case, threads: int = 1, **changes: Any) -> None:
        native = library(variant)
        self.program = native.Program(native.Pool(threads))
        table = native.Packed("f32", 1, 1)
        self.program.embed(self.program.buffer(1, False), table)
        self.program.cut()
        self.page_bytes = OFFSET + 4 * case.floats + OFFSET
        memory = native.Memory(PAGES * self.page_bytes)
        self.pool = memory.data.view(np.float32).reshape(PAGES, -1)
        self.pool[:] = np.nan
        self.to = self.program.buffer(case.width, False)
        self.inputs = {name: self.program.buffer(width, False) for name, width in case.inputs}
        place = {"memory": memory, "page_bytes": self.page_bytes, "offset": OFFSET, "group": 1}
        op = getattr(self.program, case.method)
        op("op", self.to, *self.inputs.values(), **(place | case.settings | changes))

    def take(self, lengths: Sequence[int], table: Any) -> None:
        count = sum(lengths)
        self.program.take(
            token_ids=np.zeros(count, np.int32),
            positions=np.zeros((1, count), np.int64),
            row_starts=np.cumsum([0, *lengths]).astype(np.int32),
            context_lens=np.array(lengths, np.int32),
            tables=[np.zeros((len(lengths), 0), np.int32), np.array(table, np.int32)],
            chosen=np.zeros(0, np.int64),
        )

    def step(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """What comes out for each row."""
        lengths = [len(inputs["source"]) for inputs, _, _ in rows]
        self.take(lengths, [(source, target) for _, source, target in rows])
        for name, buffer in self.inputs.items():
            self.program.rows(buffer)[:] = np.concatenate([inputs[name] for inputs, _, _ in rows])
        self.program.rows(self.to)[:] = np.nan
        self.program.start(1)
        self.program.wait()
        return np.split(self.program.rows(self.to).copy(), np.cumsum(lengths)[:-1])

    def state(self, page: int) -> np.ndarray:
        """The numbers of a page that belong to the layer."""
        part = self.pool[page, OFFSET // 4 : -OFFSET // 4]
        return part.copy()


def between(inputs: Arrays, begin: int, end: int) -> Arrays:
    return {name: values[begin:end] for name, values in inputs.items()}


def alone(variant: str, case: Case, inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and state of a sequence that is computed in one step."""
    layer = Layer(variant, case)
    (out,) = layer.step([(inputs, 0, 1)])
    return out, layer.state(1)


@every_variant
@every_case
def test_it_matches_its_twin(variant, case):
    inputs = case.sequence(200, 20)
    out, _ = alone(variant, case, inputs)
    expected = case.expected(inputs)
    assert np.linalg.norm(out - expected) <= 1e-6 * np.linalg.norm(expected)
    assert np.abs(out - expected).max() <= 1e-5 * np.abs(expected).max()


@every_variant
@every_case
@pytest.mark.parametrize("threads", [1, 2])
def test_no_bit_shows_how_sequences_were_cut_and_batched(variant, case, threads):
    """Sequences of several lengths advance by random numbers of tokens, none included."""
    sequences = [case.sequence(length, 10 * i) for i, length in enumerate((40, 1, 9, 17))]
    layer = Layer(variant, case, threads)
    done, outs, rng = [0] * 4, [[] for _ in sequences], RNG(threads)
    pages = [(0, 1 + 2 * i, 2 + 2 * i) for i in range(4)]  # now, next, then
    while any(count < len(seq["source"]) for count, seq in zip(done, sequences, strict=True)):
        chosen = rng.permutation(4)[: rng.integers(1, 5)]
        ends = {i: min(done[i] + rng.integers(0, 8), len(sequences[i]["source"])) for i in chosen}
        rows = [(between(sequences[i], done[i], ends[i]), *pages[i][:2]) for i in chosen]
        for i, out in zip(chosen, layer.step(rows), strict=True):
            outs[i].append(out)
            done[i] = ends[i]
            pages[i] = (pages[i][1], pages[i][2], pages[i][1])
    for inputs, parts, (page, _, _) in zip(sequences, outs, pages, strict=True):
        out, state = alone(variant, case, inputs)
        assert np.array_equal(np.concatenate(parts), out)
        assert np.array_equal(layer.state(page), state)
    assert np.isnan(layer.pool[:, : OFFSET // 4]).all()
    assert np.isnan(layer.pool[:, -OFFSET // 4 :]).all()
    assert np.isnan(layer.pool[0]).all()


@every_variant
@every_case
def test_a_step_can_be_computed_again_and_states_shared(variant, case):
    first, second = case.sequence(6, 0), case.sequence(3, 50)
    layer = Layer(variant, case, 2)
    layer.step([(first, 0, 1)])
    before = layer.state(1)
    (once,) = layer.step([(second, 1, 2)])
    state = layer.state(2)
    layer.pool[2] = np.nan
    again = layer.step([(second, 1, 2), (second, 1, 3)])
    assert all(np.array_equal(out, once) for out in again)
    assert np.array_equal(layer.state(2), state) and np.array_equal(layer.state(3), state)
    assert np.array_equal(layer.state(1), before)


@every_variant
@every_case
def test_a_row_without_tokens_keeps_its_state(variant, case):
    layer = Layer(variant, case)
    none = between(case.sequence(1, 0), 0, 0)
    layer.step([(case.sequence(5, 0), 0, 1)])
    layer.step([(none, 1, 2), (none, 0, 3)])
    assert np.array_equal(layer.state(2), layer.state(1))
    assert np.array_equal(layer.state(3), np.zeros(case.floats, np.float32))


def test_long_decays_and_large_steps_stay_finite():
    """softplus and exp at their ends: what overflows in the middle is 0 or the step itself."""
    case = mamba2_case(2, 16, 16, 1)
    inputs = case.sequence(3, 0)
    inputs["steps"][:] = [[-100, 100], [-30, 30], [5e-8, 20.5]]
    for variant in VARIANTS:
        out, _ = alone(variant, case, inputs)
        expected = case.expected(inputs)
        assert np.allclose(out, expected, rtol=1e-5, atol=1e-12)


def test_costs_are_those_of_states_and_tokens():
    case = CASES["mamba2"]
    layer = Layer(VARIANTS[-1], case)
    layer.step([(case.sequence(3, 0), 0, 1), (case.sequence(2, 9), 0, 2)])
    layer.step([(case.sequence(1, 0), 1, 3)])
    (cost,) = [rest for name, *rest in layer.program.costs() if name == "op"]
    assert cost[1:] == [{"f32": 6 * 5 * case.floats}, 4 * case.floats * 4]


@pytest.mark.parametrize(
    "table,message",
    [
        ([[0, 1], [2, PAGES]], "outside"),
        ([[0, 1], [PAGES, 2]], "outside"),
        ([[0, 1], [-1, 2]], "outside"),
        ([[0, 1], [0, 0]], "outside"),
        ([[0, 1], [2, 2]], "read and written"),
        ([[2, 1], [0, 2]], "read and written"),
        ([[0, 1], [2, 1]], "two rows"),
        ([[0, 1, 2], [0, 2, 3]], "two blocks"),
    ],
)
def test_tables_that_point_wrong_are_refused(table, message):
    layer = Layer(VARIANTS[-1], CASES["mamba2"])
    layer.take([1, 1], [[3, 1], [3, 2]])
    with pytest.raises(ValueError, match=message):
        layer.take([1, 1], table)


@pytest.mark.parametrize(
    "case,changes,message",
    [
        ("convolution", {"weight": normal(300, 9, seed=0)}, "taps"),
        ("convolution", {"weight": normal(299, 4, seed=0)}, "fill"),
        ("convolution", {"bias": normal(3, seed=0)}, "another size"),
        ("convolution", {"activation": "gelu"}, "activation"),
        ("convolution", {"column": 1}, "outside"),
        ("convolution", {"offset": 3 * OFFSET}, "page"),
        ("convolution", {"offset": 2}, "page"),
        ("convolution", {"group": -1}, "group"),
        ("mamba2", {"groups": 3}, "groups"),
        ("mamba2", {"state_size": 31}, "fill"),
        ("mamba2", {"heads": 2}, "fill"),
        ("mamba2", {"a": rates(3, seed=0)}, "another size"),
        ("mamba2", {"offset": 3 * OFFSET}, "page"),
        ("mamba1", {"a": rates(96, 15, seed=0)}, "fill"),
        ("mamba1", {"d": normal(95, seed=0)}, "another size"),
        ("delta", {"key_heads": 3}, "key_heads"),
        ("delta", {"value_dim": 63}, "fill"),
        ("delta", {"dt_bias": normal(5, seed=0)}, "another size"),
    ],
)
def test_what_does_not_fit_is_refused(case, changes, message):
    with pytest.raises(ValueError, match=message):
        Layer(VARIANTS[-1], CASES[case], **changes)


def test_buffers_given_twice_or_of_chosen_rows_are_refused():
    layer = Layer(VARIANTS[-1], CASES["convolution"])
    program, x = layer.program, layer.inputs["source"]
    native = library(VARIANTS[-1])
    place = {"memory": native.Memory(4096), "page_bytes": 4096, "offset": 0, "group": 1}
    weight = normal(300, 2, seed=0)
    with pytest.raises(ValueError, match="twice"):
        program.convolve("c", x, x, weight=weight, **place)
    with pytest.raises(ValueError, match="tokens"):
        program.convolve("c", program.buffer(300, True), x, weight=weight, **place)
