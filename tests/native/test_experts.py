"""Mixtures of experts against their meaning in numpy, and the promise about their bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from octavo.native.library import library, usable_variants

HIDDEN, INNER, EXPERTS, TOP = 96, 160, 12, 3
FLOATS = ("f32", "bf16", "f16")
FORMATS = (*FLOATS, "q4_0", "q4_1", "q5_0", "q8_0", "mxfp4", "int8")
ROUTERS: dict[str, dict[str, Any]] = {
    "softmax": {"scoring": "softmax", "normalise": True},
    "not normalised": {"scoring": "softmax", "normalise": False, "scale": 2.5},
    "softmax of the chosen": {"scoring": "softmax_of_top", "normalise": False},
    "sigmoid": {"scoring": "sigmoid", "normalise": True, "scale": 2.5},
    "sigmoid with an epsilon": {"scoring": "sigmoid", "normalise": True, "eps": 0.1},
    "with a correction": {"scoring": "sigmoid", "normalise": True, "bias": True},
    "best groups": {"scoring": "softmax", "normalise": False, "groups": 4, "top_groups": 2},
    "groups by their two best": {
        "scoring": "sigmoid",
        "normalise": True,
        "bias": True,
        "groups": 3,
        "top_groups": 2,
        "group_score": "top2",
    },
}

pytestmark = pytest.mark.parametrize("variant", usable_variants())


@pytest.fixture
def native(variant: str) -> Any:
    return library(variant)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ---- The same in numpy, float64 ----


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def chosen_by(
    logits: np.ndarray,
    top_k: int,
    scoring: str,
    normalise: bool,
    eps: float = 1e-20,
    scale: float = 1.0,
    bias: np.ndarray | None = None,
    groups: int = 1,
    top_groups: int = 1,
    group_score: str = "max",
) -> dict[int, float]:
    """Expert -> weight, of one token's logits [experts]."""
    x = logits.astype(np.float64)
    scores = {"softmax": softmax, "sigmoid": lambda v: 1 / (1 + np.exp(-v))}.get(scoring, np.array)(
        x
    )
    choice = (scores if bias is None else scores + bias).reshape(groups, -1)
    best = np.sort(choice)[:, ::-1][:, : 2 if group_score == "top2" else 1].sum(axis=1)
    choice[np.argsort(-best, kind="stable")[top_groups:]] = -np.inf
    chosen = np.argsort(-choice.ravel(), kind="stable")[:top_k]
    weights = softmax(x[chosen]) if scoring == "softmax_of_top" else scores[chosen]
    factor = scale / (weights.sum() + eps) if normalise else scale
    return dict(zip(chosen.tolist(), (weights * factor).tolist(), strict=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(2 * (2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))


def gelu(x: np.ndarray) -> np.ndarray:
    import torch

    return torch.nn.functional.gelu(torch.from_numpy(x)).numpy()


def gated(
    activation: str, gate: np.ndarray, up: np.ndarray, limit: float, shift: float
) -> np.ndarray:
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    functions = {
        "silu": lambda x: x * sigmoid(x),
        "gelu": gelu,
        "gelu_tanh": gelu_tanh,
        "quick_gelu": lambda x: x * sigmoid(1.702 * x),
        "relu": lambda x: np.maximum(x, 0),
        "relu2": lambda x: np.maximum(x, 0) ** 2,
    }
    return functions[activation](gate) * (up + shift)


# ---- Weights ----


def packed(native: Any, name: str, n: int, k: int, seed: int) -> Any:
    values = normal(n, k, seed=seed) / np.float32(k**0.5)
    matrix = native.Packed(name, n, k)
    if name in FLOATS:
        native.pack_float(matrix, values, 0)
    elif name == "int8":
        scales = np.abs(values).max(axis=1) / 127
        native.pack_int8(matrix, np.rint(values / scales[:, None]).astype(np.int8), scales, 0)
    else:
        native.pack_blocks(matrix, quantize(values, GGMLQuantizationType[name.upper()]), 0)
    return matrix


def unpacked(native: Any, matrix: Any) -> np.ndarray:
    values = np.empty((matrix.n, matrix.k), np.float32)
    native.unpack(matrix, 0, values)
    return values.astype(np.float64)


@dataclass
class Moe:
    """A mixture's linears and how its tokens are routed; `formats` are of gate, up and down."""

    native: Any
    formats: tuple[str, str, str] = ("f32", "f32", "f32")
    router: dict[str, Any] = field(default_factory=lambda: dict(ROUTERS["softmax"]))
    activation: str = "silu"
    biased: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    hidden: int = HIDDEN
    inner: int = INNER
    experts: int = EXPERTS
    top_k: int = TOP
    values: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.router.get("bias") is True:
            self.router["bias"] = normal(self.experts, seed=9) * np.float32(0.3)
        shapes = [(self.inner, self.hidden)] * 2 + [(self.hidden, self.inner)]
        self.linears = [
            [
                (
                    packed(self.native, name, n, k, seed=100 * i + e),
                    normal(n, seed=200 * i + e) if self.biased else None,
                )
                for e in range(self.experts)
            ]
            for i, (name, (n, k)) in enumerate(zip(self.formats, shapes, strict=True))
        ]

    def program(self, threads: int = 2, layers: int = 1) -> Program:
        return Program(self, threads, layers)

    def meaning(self, x: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """What is added to each token's row, float64."""
        weigh_input = self.options.get("weigh_input", False)
        limit, shift = self.options.get("limit", 0.0), self.options.get("shift", 0.0)
        added = np.zeros((len(x), self.hidden))
        for t, row in enumerate(x.astype(np.float64)):
            for e, weight in chosen_by(logits[t], self.top_k, **self.router).items():
                values = row * weight if weigh_input else row
                gate, up = (self._apply(i, e, values) for i in (0, 1))
                inner = gated(self.activation, gate, up, limit, shift)
                added[t] += self._apply(2, e, inner) * (1 if weigh_input else weight)
        return added

    def _apply(self, which: int, expert: int, x: np.ndarray) -> np.ndarray:
        matrix, bias = self.linears[which][expert]
        if (which, expert) not in self.values:
            self.values[which, expert] = unpacked(self.native, matrix)
        y = self.values[which, expert] @ x
        return y if bias is None else y + bias


class Program:
    """y += experts(x), by buffers that the caller fills."""

    def __init__(self, moe: Moe, threads: int, layers: int) -> None:
        native = moe.native
        self.program = native.Program(native.Pool(threads))
        self.x = self.program.buffer(moe.hidden, False)
        self.y = self.program.buffer(moe.hidden, False)
        self.logits = self.program.buffer(moe.experts, False)
        self.program.embed(self.x, native.Packed("f32", 1, moe.hidden))
        self.program.cut()  # what is before is not run: the caller fills the buffers
        for _ in range(layers):
            routes = self.program.route("route", self.logits, top_k=moe.top_k, **moe.router)
            self.program.experts(
                "experts", self.y, self.x, routes, *moe.linears, moe.activation, **moe.options
            )

    def __call__(
        self, x: np.ndarray, logits: np.ndarray, y: np.ndarray | None = None
    ) -> np.ndarray:
        self.program.take(
            token_ids=np.zeros(len(x), np.int32),
            positions=np.zeros((0, len(x)), np.int64),
            row_starts=np.array([0, len(x)], np.int32),
            context_lens=np.array([len(x)], np.int32),
            tables=[],
            chosen=np.zeros(0, np.int64),
        )
        given = np.zeros_like(x) if y is None else y
        for buffer, values in ((self.x, x), (self.logits, logits), (self.y, given)):
            self.program.rows(buffer)[:] = values
        self.program.start(1)
        self.program.wait()
        return self.program.rows(self.y).copy()


def logits_of(tokens: int, experts: int = EXPERTS, seed: int = 1) -> np.ndarray:
    return normal(tokens, experts, seed=seed)


def assert_near(got: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """Within `tolerance` of the size of each row."""
    sizes = np.linalg.norm(wanted, axis=1, keepdims=True) + 1e-6
    assert np.all(np.linalg.norm(got - wanted, axis=1, keepdims=True) <= tolerance * sizes)


@pytest.mark.parametrize("router", ROUTERS)
def test_tokens_go_to_the_experts_that_numpy_chooses(native: Any, router: str) -> None:
    moe = Moe(native, router=dict(ROUTERS[router]))
    x, logits = normal(40, HIDDEN), logits_of(40)
    y = normal(40, HIDDEN, seed=3)
    got = moe.program()(x, logits, y)
    assert_near(got, y + moe.meaning(x, logits), 2e-6)


def test_of_equal_choices_the_lower_expert_wins(native: Any) -> None:
    moe = Moe(native, router={"scoring": "softmax", "normalise": False})
    logits = np.zeros((2, EXPERTS), np.float32)
    logits[1, 5] = logits[1, 9:] = 1
    x = normal(2, HIDDEN)
    assert list(chosen_by(logits[1], TOP, "softmax", False)) == [5, 9, 10]
    assert_near(moe.program()(x, logits), moe.meaning(x, logits), 2e-6)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2"])
@pytest.mark.parametrize(("limit", "shift"), [(0.0, 0.0), (0.4, 0.0), (0.4, 1.0)])
def test_activations_bounds_and_biases(
    native: Any, activation: str, limit: float, shift: float
) -> None:
    options = {"limit": limit, "shift": shift}
    moe = Moe(native, activation=activation, biased=True, options=options)
    x, logits = normal(9, HIDDEN), logits_of(9)
    assert_near(moe.program()(x, logits), moe.meaning(x, logits), 5e-6)


@pytest.mark.parametrize("formats", [("f32", "f32", "f32"), ("q8_0", "bf16", "q4_1")])
def test_the_weight_may_be_of_the_input(native: Any, formats: tuple[str, str, str]) -> None:
    router = {"scoring": "sigmoid", "normalise": False}
    moe = Moe(native, formats, router, options={"weigh_input": True})
    x, logits = normal(30, HIDDEN), logits_of(30)
    got = moe.program()(x, logits)
    assert_near(got, moe.meaning(x, logits), 2e-6 if formats[0] == "f32" else 0.02)


MIXED = [("q4_0", "q5_0", "q8_0"), ("f32", "q4_1", "int8"), ("int8", "bf16", "f16")]


@pytest.mark.parametrize("formats", [(name,) * 3 for name in FORMATS] + MIXED)
@pytest.mark.parametrize("tokens", [0, 1, 5, 130])
def test_all_formats_have_their_meaning(
    native: Any, formats: tuple[str, str, str], tokens: int
) -> None:
    moe = Moe(native, formats, biased=True)
    x, logits = normal(tokens, HIDDEN), logits_of(tokens)
    got = moe.program()(x, logits)
    exact = set(formats) <= {"f32", "f16"}
    assert_near(got, moe.meaning(x, logits), 2e-6 if exact else 0.02)


def test_experts_of_one_mixture_may_differ_in_format(native: Any) -> None:
    moe = Moe(native)
    others = [Moe(native, (name,) * 3) for name in ("q8_0", "bf16", "int8")]
    for which, linears in enumerate(moe.linears):
        for e in range(EXPERTS):
            linears[e] = ([moe, *others][(e + which) % 4]).linears[which][e]
    x, logits = normal(50, HIDDEN), logits_of(50)
    assert_near(moe.program()(x, logits), moe.meaning(x, logits), 0.02)


@pytest.mark.parametrize("formats", [(name,) * 3 for name in FORMATS] + MIXED)
@pytest.mark.parametrize("weigh_input", [False, True])
def test_a_row_has_the_same_bits_in_every_batch(
    native: Any, formats: tuple[str, str, str], weigh_input: bool
) -> None:
    """However many rows there are, in any order, among any others, on any number of threads."""
    moe = Moe(native, formats, biased=True, options={"weigh_input": weigh_input})
    x, logits = normal(700, HIDDEN), logits_of(700)
    logits[:, 4] += 1  # so that one expert has several spans
    alone, programs = moe.program(1), [moe.program(threads) for threads in (1, 2)]
    wanted = np.concatenate([alone(x[t : t + 1], logits[t : t + 1]) for t in range(64)])
    order = np.random.default_rng(2).permutation(700)
    inverse = np.argsort(order)
    for program in programs:
        got = program(x[order], logits[order])[inverse]
        np.testing.assert_array_equal(got[:64], wanted)
        for size in (2, 3, 7, 30, 64):
            np.testing.assert_array_equal(program(x[:size], logits[:size]), wanted[:size])


@pytest.mark.parametrize("formats", [("f32", "f32", "f32"), ("q4_0", "q8_0", "q4_1")])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_row(
    native: Any, formats: tuple[str, str, str], bad: float
) -> None:
    moe = Moe(native, formats)
    x, logits = normal(20, HIDDEN), logits_of(20)
    program = moe.program()
    clean = program(x, logits)
    x[11, 5] = bad
    logits[11] = np.nan
    got = program(x, logits)
    assert not np.isfinite(got[11]).any()
    others = np.arange(20) != 11
    np.testing.assert_array_equal(got[others], clean[others])
    fewer = program(x[:3], logits[:3])  # what the larger step left behind does not matter
    np.testing.assert_array_equal(fewer, clean[:3])


def test_any_logits_lead_to_experts(native: Any) -> None:
    """Not a number, infinite, or all alike: none leads outside of the experts."""
    kinds = [np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30]
    logits = np.random.default_rng(5).choice(kinds, (300, EXPERTS)).astype(np.float32)
    x = normal(300, HIDDEN)
    for router in ROUTERS.values():
        moe = Moe(native, router=dict(router))
        assert moe.program()(x, logits).shape == x.shape


def test_layers_share_what_they_work_in(native: Any) -> None:
    moe = Moe(native, ("q4_0", "q4_0", "q8_0"))
    x, logits = normal(33, HIDDEN), logits_of(33)
    once, twice = moe.program()(x, logits), moe.program(layers=2)(x, logits)
    np.testing.assert_array_equal(once + once, twice)


def test_hidden_and_inner_may_be_alike_or_odd(native: Any) -> None:
    for hidden, inner in [(96, 96), (33, 17), (17, 33)]:
        moe = Moe(native, hidden=hidden, inner=inner)
        x, logits = normal(21, hidden), logits_of(21)
        assert_near(moe.program()(x, logits), moe.meaning(x, logits), 2e-6)


def test_costs_count_only_experts_that_were_used(native: Any) -> None:
    moe = Moe(native, ("q4_0", "q4_0", "q8_0"))
    x, logits = normal(400, HIDDEN), logits_of(400)
    logits[:, [0, 3, 5, 11]] += 100  # all go to these, and most to the first: several spans
    logits[:, 0] += 10
    program = moe.program()
    program(x, logits)
    [(_, seconds, operations, nbytes)] = [c for c in program.program.costs() if c[0] == "experts"]
    used = {e for row in logits for e in chosen_by(row, TOP, **moe.router)}
    assert used == {0, 3, 5, 11}
    assert seconds > 0
    assert nbytes == sum(moe.linears[i][e][0].nbytes for i in range(3) for e in used)
    assert sum(operations.values()) == 400 * TOP * 3 * 2 * HIDDEN * INNER


def test_what_does_not_fit_is_refused(native: Any) -> None:
    moe = Moe(native)
    program = native.Program(native.Pool(1))
    x, y, logits = (program.buffer(width, False) for width in (HIDDEN, HIDDEN, EXPERTS))
    chosen = program.buffer(EXPERTS, True)

    def route(source: int = logits, **changes: Any) -> int:
        router = {"top_k": TOP, "scoring": "softmax", "normalise": True} | changes
        return int(program.route("route", source, **router))

    for changes, message in [
        ({"source": chosen}, "all tokens"),
        ({"top_k": EXPERTS + 1}, "so many experts"),
        ({"top_k": 0}, "so many experts"),
        ({"groups": 5}, "equal groups"),
        ({"groups": 4, "top_groups": 5}, "so many groups"),
        ({"groups": 4, "top_groups": 1, "top_k": 4}, "so many experts"),
        ({"groups": 12, "top_groups": 4, "group_score": "top2"}, "less than two"),
        ({"bias": np.zeros(3, np.float32)}, "bias"),
        ({"scoring": "tanh"}, "there is no tanh"),
    ]:
        with pytest.raises(ValueError, match=message):
            route(**changes)
    routes = route()
    gates, ups, downs = moe.linears

    def experts(
        to: int = y, routes: int = routes, activation: str = "silu", **linears: Any
    ) -> None:
        given = {"gates": gates, "ups": ups, "downs": downs} | linears
        program.experts("experts", to, x, routes, activation=activation, **given)

    with pytest.raises(IndexError):
        experts(routes=1)
    for arguments, message in [
        ({"to": x}, "two buffers"),
        ({"activation": "tanh"}, "there is no tanh"),
        ({"downs": downs[1:]}, "as many"),
        ({"ups": [*ups[1:], downs[0]]}, "another shape"),
        ({"gates": [(None, None), *gates[1:]]}, "None"),
        ({"ups": [(ups[0][0], np.zeros(3, np.float32)), *ups[1:]]}, "bias"),
    ]:
        with pytest.raises(ValueError, match=message):
            experts(**arguments)
    experts()
