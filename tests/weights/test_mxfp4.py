"""MXFP4 of gpt-oss's safetensors: its values one by one, and the same numbers as GGUF's rows."""

from __future__ import annotations

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from octavo.weights.mxfp4 import dequantised, gguf_rows


def test_codes_and_scales_have_the_values_of_the_standard():
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    both = np.arange(16, dtype=np.uint8)  # byte j: code j, then code 15 - j
    blocks = (both | (15 - both) << 4).astype(np.uint8).reshape(1, 1, 16)
    of_codes = np.array([*values, *(-v for v in values)])
    expected = np.stack([of_codes, of_codes[::-1]], axis=-1).ravel()
    for exponent in (-127, -3, 0, 5, 120):
        got = dequantised(blocks, np.array([[127 + exponent]], np.uint8))
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected[None] * 2.0**exponent)


def test_rows_of_gguf_are_the_same_numbers():
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (3, 5, 4, 16), dtype=np.uint8)  # [E, out, in / 32, 16]
    scales = rng.integers(0, 250, (3, 5, 4), dtype=np.uint8)
    rows = gguf_rows(blocks, scales)
    assert rows.shape == (3, 5, 4 * 17)
    assert rows.dtype == np.uint8
    expected = dequantize(rows, GGMLQuantizationType.MXFP4)
    np.testing.assert_array_equal(dequantised(blocks, scales), expected)


def test_parts_of_a_tensor_may_be_turned_alone():
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (8, 2, 16), dtype=np.uint8)
    scales = rng.integers(0, 255, (8, 2), dtype=np.uint8)
    np.testing.assert_array_equal(
        gguf_rows(blocks, scales)[2:5], gguf_rows(blocks[2:5], scales[2:5])
    )
