"""Block-quantised linears against their meaning in numpy, and the promise about their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from octavo.native.library import library, usable_variants

SMALL = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4")
K_QUANTS = ("q4_k", "q5_k", "q6_k")
GGUF = SMALL + K_QUANTS

pytestmark = pytest.mark.parametrize("variant", usable_variants())


@pytest.fixture
def native(variant: str) -> Any:
    return library(variant)


def kind_of(name: str) -> GGMLQuantizationType:
    return GGMLQuantizationType[name.upper()]


def random_blocks(name: str, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """uint8 [n, row bytes]: any codes and byte scales, other scales of a sane size."""
    block, size = GGML_QUANT_SIZES[kind_of(name)]
    raw = rng.integers(0, 256, (n, k // block, size), dtype=np.uint8)
    if name == "mxfp4":
        raw[:, :, 0] = rng.integers(115, 125, raw.shape[:2])  # powers of 2
        return raw.reshape(n, -1)
    places = (208,) if name == "q6_k" else (0, 2) if name in ("q4_1", "q5_1", *K_QUANTS) else (0,)
    for at in places:
        scales = rng.normal(0, 0.01, (n, k // block)).astype(np.float16)
        raw[:, :, at : at + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(n, -1)


def packed_from(native: Any, name: str, raw: np.ndarray, k: int) -> Any:
    packed = native.Packed(name, len(raw), k)
    native.pack_blocks(packed, raw, 0)
    return packed


def unpacked(native: Any, packed: Any) -> np.ndarray:
    values = np.empty((packed.n, packed.k), np.float32)
    for index in range(packed.n):
        native.unpack(packed, index, values[index : index + 1])
    return values


def product(native: Any, packed: Any, x: np.ndarray, threads: int = 1) -> np.ndarray:
    y = np.full((len(x), packed.n), np.nan, np.float32)
    native.linear(native.Pool(threads), [(packed, None)], np.ascontiguousarray(x), y)
    return y


def in_blocks(x: np.ndarray) -> np.ndarray:
    """What is left of `x` [T, k] in int8: a scale for each 32 values, and a factor of it, in
    1..16, for each half of them. float64."""
    halves = x.reshape(len(x), x.shape[1] // 32, 2, 16)
    most = np.abs(halves).max(axis=-1)
    larger = most.max(axis=-1, keepdims=True)
    share = np.divide(np.float32(16), larger, out=np.zeros_like(larger), where=larger > 0)
    factors = np.clip(np.ceil(most * share), 1, 16).astype(np.float32)
    integers = np.rint(halves * (np.float32(127) * share / factors)[..., None])
    steps = (larger * np.float32(1 / (16 * 127))).astype(np.float64) * factors
    return (integers * steps[..., None]).reshape(x.shape)


def in_words(x: np.ndarray) -> np.ndarray:
    """What is left of `x` [T, k] in int16: a scale for each 32 values. float64."""
    blocks = x.reshape(len(x), x.shape[1] // 32, 32)
    most = np.abs(blocks).max(axis=-1, keepdims=True)
    integers = np.rint(blocks * (np.float32(32767) / most))
    return (integers * (most / np.float32(32767)).astype(np.float64)).reshape(x.shape)


def in_form(native: Any, name: str, x: np.ndarray) -> np.ndarray:
    """What is left of `x` as the kernels of a format read it. float64."""
    words = name == "q8_0" and native.variant != "avx512bf16"  # which multiplies whole bytes
    return in_words(x) if words else in_blocks(x)


def in_rows(x: np.ndarray) -> np.ndarray:
    """What is left of `x` [T, k] in int8 with one scale for each row. float64."""
    most = np.abs(x).max(axis=-1, keepdims=True)
    return np.rint(x * (np.float32(127) / most)) * (most / np.float32(127)).astype(np.float64)


def close(got: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> bool:
    """Within a few roundings of fp32, of the sum of what was added."""
    size = np.abs(rows) @ np.abs(weights.astype(np.float64)).T
    return bool(np.all(np.abs(got - rows @ weights.astype(np.float64).T) <= 1e-6 * size + 1e-30))


@pytest.mark.parametrize("name", GGUF)
@pytest.mark.parametrize("n", [1, 15, 17, 64])
def test_unpacking_gives_the_values_of_gguf(native: Any, name: str, n: int) -> None:
    raw = random_blocks(name, n, 512, np.random.default_rng(n))
    packed = packed_from(native, name, raw, 512)
    np.testing.assert_array_equal(unpacked(native, packed), dequantize(raw, kind_of(name)))


def test_all_exponents_of_mxfp4_have_their_values(native: Any) -> None:
    raw = np.zeros((16, 16, 17), np.uint8)
    raw[..., 0] = np.arange(256).reshape(16, 16)
    raw[..., 1:] = np.arange(16) * 16 + np.arange(16)[::-1]  # every code
    raw = raw.reshape(16, -1)
    with np.errstate(over="ignore"):
        expected = dequantize(raw, kind_of("mxfp4"))
    got = unpacked(native, packed_from(native, "mxfp4", raw, 512))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", SMALL)
def test_a_quantised_matrix_unpacks_too(native: Any, name: str) -> None:
    weights = np.random.default_rng(0).normal(size=(24, 96)).astype(np.float32)
    raw = quantize(weights, kind_of(name))
    got = unpacked(native, packed_from(native, name, raw, 96))
    np.testing.assert_array_equal(got, dequantize(raw, kind_of(name)))
    assert np.abs(got - weights).max() < (1.0 if name == "mxfp4" else 0.4)


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 64])
@pytest.mark.parametrize(
    ("name", "n", "k"),
    [(name, n, k) for name in SMALL for n, k in [(1, 32), (15, 64), (17, 96), (40, 1056)]]
    + [(name, n, k) for name in K_QUANTS for n, k in [(1, 256), (17, 512), (40, 1280)]],
)
def test_the_product_has_its_meaning(native: Any, name: str, n: int, k: int, rows: int) -> None:
    rng = np.random.default_rng(k + rows)
    raw = random_blocks(name, n, k, rng)
    x = rng.normal(size=(rows, k)).astype(np.float32)
    got = product(native, packed_from(native, name, raw, k), x, threads=2)
    weights = dequantize(raw, kind_of(name))
    assert got.shape == (rows, n)
    assert close(got, weights, in_form(native, name, x))
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    sizes = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(weights, axis=1))
    assert np.all(np.abs(got - exact) <= 0.008 * sizes)


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 64])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (15, 33), (17, 96), (40, 1100)])
def test_int8_has_one_scale_for_each_output_and_row(native: Any, n: int, k: int, rows: int) -> None:
    rng = np.random.default_rng(k + rows)
    codes = rng.integers(-128, 128, (n, k), dtype=np.int8)
    scales = rng.uniform(0.001, 0.1, n).astype(np.float32)
    packed = native.Packed("int8", n, k)
    native.pack_int8(packed, codes[:1], scales[:1], 0)
    native.pack_int8(packed, codes[1:], scales[1:], 1)
    weights = codes * scales[:, None]
    np.testing.assert_array_equal(unpacked(native, packed), weights)
    x = rng.normal(size=(rows, k)).astype(np.float32)
    assert close(product(native, packed, x, threads=2), weights, in_rows(x))


def any_packed(native: Any, name: str, n: int, k: int, rng: np.random.Generator) -> Any:
    if name != "int8":
        return packed_from(native, name, random_blocks(name, n, k, rng), k)
    packed = native.Packed("int8", n, k)
    codes = rng.integers(-128, 128, (n, k), dtype=np.int8)
    native.pack_int8(packed, codes, rng.uniform(0.001, 0.1, n).astype(np.float32), 0)
    return packed


@pytest.mark.parametrize("name", [*GGUF, "int8"])
def test_a_row_has_the_same_bits_in_every_batch(native: Any, name: str) -> None:
    rng = np.random.default_rng(1)
    packed = any_packed(native, name, 40, 1280, rng)
    x = rng.normal(size=(67, 1280)).astype(np.float32)
    whole = product(native, packed, x)
    order = rng.permutation(len(x))
    np.testing.assert_array_equal(product(native, packed, x[order], threads=2), whole[order])
    for size in (1, 2, 3, 5, 7, 8, 30):
        parts = [product(native, packed, x[at : at + size]) for at in range(0, len(x), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", [*GGUF, "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_row(native: Any, name: str, bad: float) -> None:
    rng = np.random.default_rng(2)
    packed = any_packed(native, name, 17, 256, rng)
    x = rng.normal(size=(6, 256)).astype(np.float32)
    whole = product(native, packed, x)
    x[3, 100] = bad
    spoilt = product(native, packed, x)
    assert np.isnan(spoilt[3]).all()
    others = [0, 1, 2, 4, 5]
    np.testing.assert_array_equal(spoilt[others], whole[others])


@pytest.mark.parametrize("name", GGUF)
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_codes_and_values_do_not_overflow(
    native: Any, name: str, byte: int, sign: int
) -> None:
    _, size = GGML_QUANT_SIZES[kind_of(name)]
    raw = random_blocks(name, 16, 256, np.random.default_rng(3)).reshape(16, -1, size)
    scales = np.isin(np.arange(size), [208, 209] if name == "q6_k" else [0, 1])
    if name in ("q4_1", "q5_1", *K_QUANTS[:2]):
        scales[2:4] = True
    if name == "mxfp4":
        scales[1] = False
    raw[..., ~scales] = byte
    raw = raw.reshape(16, -1)
    x = np.full((5, 256), 3.7 * sign, np.float32)
    x[2, ::2] *= -1
    expected = in_blocks(x) @ dequantize(raw, kind_of(name)).astype(np.float64).T
    got = product(native, packed_from(native, name, raw, 256), x)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", [*GGUF, "int8"])
def test_zeros_give_zero(native: Any, name: str) -> None:
    packed = any_packed(native, name, 17, 256, np.random.default_rng(4))
    assert not product(native, packed, np.zeros((3, 256), np.float32)).any()
    assert np.isfinite(product(native, packed, np.full((3, 256), 1e-40, np.float32))).all()
    empty = native.Packed(name, 17, 256)
    assert not product(native, empty, np.ones((3, 256), np.float32)).any()


@pytest.mark.parametrize("name", GGUF)
def test_rows_may_be_packed_in_any_parts(native: Any, name: str) -> None:
    raw = random_blocks(name, 37, 256, np.random.default_rng(5))
    whole = packed_from(native, name, raw, 256)
    parts = native.Packed(name, 37, 256)
    for first, last in [(30, 37), (3, 30), (0, 3)]:
        native.pack_blocks(parts, raw[first:last], first)
    np.testing.assert_array_equal(parts.data, whole.data)


def test_rows_of_another_shape_are_refused(native: Any) -> None:
    packed = native.Packed("q4_0", 4, 64)
    row = np.zeros((1, 36), np.uint8)
    with pytest.raises(ValueError, match="as long as k"):
        native.pack_blocks(packed, row[:, 1:].copy(), 0)
    with pytest.raises(ValueError, match="must lie in the weights"):
        native.pack_blocks(packed, row, 4)
    with pytest.raises(ValueError, match="whole number of blocks"):
        native.pack_blocks(native.Packed("q4_k", 4, 64), row, 0)
    with pytest.raises(ValueError, match="not a format of GGUF"):
        native.pack_blocks(native.Packed("int8", 4, 64), row, 0)
    with pytest.raises(ValueError, match="must be int8"):
        native.pack_int8(packed, np.zeros((1, 64), np.int8), np.zeros(1, np.float32), 0)
