"""Linears over f32, bf16 and f16 weights against their meaning in numpy, and the promise about
their bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from octavo.layers.ops import ACTIVATIONS
from octavo.native.library import library, usable_variants

FORMATS = ("f32", "bf16", "f16")

pytestmark = pytest.mark.parametrize("variant", usable_variants())


@pytest.fixture
def native(variant: str) -> Any:
    return library(variant)


def to_bits(values: np.ndarray) -> np.ndarray:
    """bfloat16, rounded to nearest even; as uint16."""
    return torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()


def from_bits(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    """float32 that the format holds."""
    if name == "bf16":
        return from_bits(to_bits(values))
    return values.astype(np.float16).astype(np.float32) if name == "f16" else values


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def pack(native: Any, name: str, weights: np.ndarray) -> Any:
    packed = native.Packed(name, *weights.shape)
    native.pack_float(packed, weights, 0)
    return packed


def unpack(native: Any, packed: Any) -> np.ndarray:
    values = np.full((packed.n, packed.k), np.nan, np.float32)
    for index in range(packed.n):
        native.unpack(packed, index, values[index : index + 1])
    return values


def linear(native: Any, weights: Sequence[Any], x: np.ndarray, threads: int = 1) -> np.ndarray:
    """Outputs of weights without bias, side by side."""
    y = np.full((len(x), sum(packed.n for packed in weights)), np.nan, np.float32)
    native.linear(native.Pool(threads), [(packed, None) for packed in weights], x, y)
    return y


def meaning(native: Any, name: str, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """float64 [T, n]"""
    pairs = native.variant == "avx512bf16" and name == "bf16"  # it multiplies bfloat16 pairs
    rows = rounded(x, "bf16") if pairs else x
    return rows.astype(np.float64) @ rounded(weights, name).astype(np.float64).T


def assert_close(got: np.ndarray, wanted: np.ndarray, k: int) -> None:
    """Within some roundings of fp32, for normal values."""
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6 * k**0.5)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("k", [1, 31, 33, 576])
@pytest.mark.parametrize("n", [1, 15, 17, 64])
def test_the_product_has_its_meaning(native: Any, name: str, n: int, k: int) -> None:
    weights = normal(n, k, seed=n)
    packed = pack(native, name, weights)
    for tokens in (0, 1, 2, 3, 5, 7, 13, 130, 400):
        x = normal(tokens, k, seed=tokens + 1)
        got = linear(native, [packed], x, threads=2)
        assert_close(got, meaning(native, name, weights, x), k)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("threads", [1, 3])
def test_outputs_lie_side_by_side_and_bias_and_add_come_last(
    native: Any, name: str, threads: int
) -> None:
    sizes = (576, 17, 40)
    weights = [normal(n, 96, seed=n) for n in sizes]
    biases = [normal(576, seed=5), None, normal(40, seed=6)]
    x, before = normal(9, 96, seed=7), normal(9, sum(sizes) + 3, seed=8)
    parts = [(pack(native, name, w), b) for w, b in zip(weights, biases, strict=True)]
    plain = linear(native, [packed for packed, _ in parts], x)
    for part, w in zip(np.split(plain, np.cumsum(sizes)[:-1], axis=1), weights, strict=True):
        assert_close(part, meaning(native, name, w, x), 96)

    biased = plain + np.concatenate([np.zeros(17, np.float32) if b is None else b for b in biases])
    y = before.copy()
    native.linear(native.Pool(threads), parts, x, y)
    np.testing.assert_array_equal(y[:, :-3], biased)
    np.testing.assert_array_equal(y[:, -3:], before[:, -3:])
    y = before.copy()
    native.linear(native.Pool(threads), parts, x, y, add=True)
    np.testing.assert_array_equal(y[:, :-3], before[:, :-3] + biased)
    np.testing.assert_array_equal(y[:, -3:], before[:, -3:])


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("name", FORMATS)
def test_gate_and_up_are_multiplied(native: Any, name: str, activation: str) -> None:
    gate, up, x = normal(150, 64, seed=1), normal(150, 64, seed=2), normal(200, 64, seed=3)
    gate_bias, up_bias = normal(150, seed=4), normal(150, seed=5)
    packed = [pack(native, name, weights) for weights in (gate, up)]
    y = np.full((200, 150), np.nan, np.float32)
    native.gated(native.Pool(2), (packed[0], gate_bias), (packed[1], up_bias), activation, x, y)
    inner = torch.from_numpy(meaning(native, name, gate, x) + gate_bias)
    wanted = ACTIVATIONS[activation](inner).numpy() * (meaning(native, name, up, x) + up_bias)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-4)


def exact_activation(name: str, x: torch.Tensor) -> torch.Tensor:
    """Without a difference of nearly equal numbers, which even float64 does not bear."""
    if name == "gelu":
        return x * torch.special.erfc(-x / 2**0.5) / 2
    inner = 2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)
    return x * torch.sigmoid(inner if name == "gelu_tanh" else x)


@pytest.mark.parametrize(
    ("activation", "tolerance"), [("silu", 5e-7), ("gelu", 2e-5), ("gelu_tanh", 3e-5)]
)
def test_an_activation_keeps_its_digits_far_out(
    native: Any, activation: str, tolerance: float
) -> None:
    x = np.append(np.linspace(-12, 12, 4801), [-1000, -100, 100, 1e30]).astype(np.float32)[:, None]
    one, zero = (pack(native, "f32", np.full((1, 1), value, np.float32)) for value in (1, 0))
    y = np.empty_like(x)
    up = (zero, np.ones(1, np.float32))
    native.gated(native.Pool(1), (one, None), up, activation, x, y)
    exact = exact_activation(activation, torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(y, exact, rtol=tolerance, atol=1e-35)


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_has_the_same_bits_in_every_batch(native: Any, name: str) -> None:
    """However many rows there are, in any order, among any others, on any number of threads."""
    weights = [pack(native, name, normal(n, 600, seed=n)) for n in (80, 7)]
    x = normal(390, 600)
    alone = np.concatenate([linear(native, weights, row[None]) for row in x])
    order = np.random.default_rng(1).permutation(len(x))
    for tokens in (*range(2, 27), 193, 390):
        for threads in (1, 2):
            chosen = order[:tokens]
            got = linear(native, weights, x[chosen], threads)
            np.testing.assert_array_equal(got, alone[chosen])


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_a_gated_row_has_the_same_bits_in_every_batch(native: Any, activation: str) -> None:
    gate, up = ((pack(native, "f16", normal(72, 96, seed=s)), None) for s in (1, 2))
    x = normal(200, 96, seed=3)
    y = np.empty((200, 72), np.float32)
    native.gated(native.Pool(2), gate, up, activation, x, y)
    for row, wanted in zip(x, y, strict=True):
        alone = np.empty((1, 72), np.float32)
        native.gated(native.Pool(1), gate, up, activation, row[None], alone)
        np.testing.assert_array_equal(alone[0], wanted)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_row(native: Any, name: str, bad: float) -> None:
    packed = pack(native, name, normal(33, 64))
    x = normal(20, 64, seed=1)
    clean = linear(native, [packed], x)
    x[11, 5] = bad
    got = linear(native, [packed], x)
    assert not np.isfinite(got[11]).any()
    others = np.arange(20) != 11
    np.testing.assert_array_equal(got[others], clean[others])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (17, 33), (40, 300), (16, 256), (33, 577)])
def test_unpacking_gives_what_was_packed(native: Any, name: str, n: int, k: int) -> None:
    weights = normal(n, k) * np.exp2(np.random.default_rng(1).integers(-30, 30, (n, k)))
    weights = weights.astype(np.float32)
    weights.flat[:4] = [0.0, -0.0, np.inf, -np.inf][: weights.size]
    with np.errstate(over="ignore"):
        wanted = rounded(weights, name)
    got = unpack(native, pack(native, name, weights))
    np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("name", FORMATS)
def test_ties_are_rounded_to_even(native: Any, name: str) -> None:
    below = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}[name]
    weights = np.array([[1 + below, 1 + 3 * below, -1 - below, np.nan]], np.float32)
    got = unpack(native, pack(native, name, weights))
    np.testing.assert_array_equal(got, [[1, 1 + 4 * below, -1, np.nan]])


@pytest.mark.parametrize("name", FORMATS)
def test_all_16_bit_numbers_are_kept_as_they_are(native: Any, name: str) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    halves = bits.view(np.float16).astype(np.float32)
    source, values = (bits, halves) if name == "f16" else (bits, from_bits(bits))
    packed = native.Packed(name, 256, 256)
    native.pack_float(packed, source.reshape(256, 256), 0)
    np.testing.assert_array_equal(unpack(native, packed).ravel(), values)
    native.pack_float(packed, bits.view(np.float16).reshape(256, 256), 0)
    np.testing.assert_array_equal(unpack(native, packed).ravel(), rounded(halves, name))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_may_be_packed_in_any_parts(native: Any, name: str) -> None:
    weights = normal(70, 45)
    weights.flags.writeable = False  # as a file's are
    whole, parts = pack(native, name, weights), native.Packed(name, 70, 45)
    for first, last in [(30, 70), (0, 5), (6, 30), (5, 6)]:
        native.pack_float(parts, weights[first:last], first)
    np.testing.assert_array_equal(parts.data, whole.data)


@pytest.mark.parametrize("name", FORMATS)
def test_packed_bytes_can_be_kept_and_put_back(native: Any, name: str) -> None:
    packed = pack(native, name, normal(20, 40))
    assert packed.nbytes == packed.data.nbytes == 2 * native.panel_bytes(name, 40)
    again = native.Packed(name, 20, 40)
    again.data[:] = packed.data
    np.testing.assert_array_equal(unpack(native, again), unpack(native, packed))
    data = pack(native, name, normal(20, 40)).data  # keeps its owner alive
    np.testing.assert_array_equal(data, packed.data)


@pytest.mark.parametrize("name", FORMATS)
def test_matrices_that_lie_together_are_each_their_own(native: Any, name: str) -> None:
    weights = [normal(17, 33, seed=seed) for seed in range(5)]
    together = native.packed_together(name, 17, 33, 5)
    for packed, values in zip(together, weights, strict=True):
        native.pack_float(packed, values, 0)
    last = together.pop()  # the memory stays as long as one of them does
    for packed, values in zip(together, weights[:4], strict=True):
        np.testing.assert_array_equal(packed.data, pack(native, name, values).data)
    del together, packed
    np.testing.assert_array_equal(last.data, pack(native, name, weights[4]).data)
    with pytest.raises(ValueError, match="count must be positive"):
        native.packed_together(name, 17, 33, 0)


def test_every_variant_packs_the_same_bytes(native: Any) -> None:
    weights = normal(33, 70)
    for name in FORMATS:
        wanted = pack(library("portable"), name, weights)
        np.testing.assert_array_equal(pack(native, name, weights).data, wanted.data)


def test_what_does_not_fit_is_refused(native: Any) -> None:
    packed, pool = native.Packed("f32", 4, 8), native.Pool(1)
    with pytest.raises(ValueError, match="there is no f64"):
        native.Packed("f64", 4, 8)
    with pytest.raises(ValueError, match="must be positive"):
        native.Packed("f32", 0, 8)
    with pytest.raises(ValueError, match="too large"):
        native.Packed("int8", 1, 65537)  # sums of 8-bit products would overflow
    with pytest.raises(ValueError, match="k values"):
        native.pack_float(packed, normal(4, 9), 0)
    with pytest.raises(ValueError, match="lie in the weights"):
        native.pack_float(packed, normal(2, 8), 3)
    with pytest.raises(ValueError, match="float32, float16 or uint16"):
        native.pack_float(packed, normal(2, 8).astype(np.float64), 0)
    with pytest.raises(ValueError, match="lie in the weights"):
        native.unpack(packed, 4, np.empty((1, 8), np.float32))
    with pytest.raises(ValueError, match=r"x must be \[T, k\]"):
        native.linear(pool, [(packed, None)], normal(2, 9), np.empty((2, 4), np.float32))
    with pytest.raises(ValueError, match="y must be"):
        native.linear(pool, [(packed, None)], normal(2, 8), np.empty((2, 3), np.float32))
    with pytest.raises(ValueError, match="None"):
        native.linear(pool, [(None, None)], normal(2, 8), normal(2, 4))
    with pytest.raises(ValueError, match="bias"):
        native.linear(pool, [(packed, normal(5))], normal(2, 8), np.empty((2, 4), np.float32))
    with pytest.raises(ValueError, match="equal shapes"):
        other = (native.Packed("f32", 5, 8), None)
        y = np.empty((2, 5), np.float32)
        native.gated(pool, (packed, None), other, "silu", normal(2, 8), y)
