"""MXFP4 as gpt-oss's safetensors hold it, and as GGUF does. Knows numpy arrays only.

A block is 32 weights: floats of 4 bits (e2m1: a sign, two bits of exponent, one of mantissa) times
a power of 2, whose exponent is a byte (e8m0, bias 127). OCP Microscaling Formats, version 1.0.

    gpt-oss   blocks uint8 [..., k / 32, 16], byte j: weights 2 j (low half) and 2 j + 1 (high)
              scales uint8 [..., k / 32]
    GGUF      rows uint8 [..., k / 32 * 17], of each block the scale, then 16 bytes, byte j:
              weights j (low half) and j + 16 (high)
"""

from __future__ import annotations

import numpy as np

_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1 = np.array((*_POSITIVE, *(-value for value in _POSITIVE)), np.float32)
_BIAS = 127


def gguf_rows(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """gpt-oss's arrays as rows of a GGUF file, uint8 [..., k / 32 * 17]: the same numbers."""
    codes = _codes(blocks)
    halves = codes[..., :16] | codes[..., 16:] << np.uint8(4)
    together = np.concatenate([scales[..., None], halves], axis=-1)
    return together.reshape(*scales.shape[:-1], -1)


def dequantised(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The values of gpt-oss's arrays, float32 [..., k]; exact."""
    exponents = scales[..., None].astype(np.int32) - _BIAS
    values: np.ndarray = np.ldexp(_E2M1[_codes(blocks)], exponents)
    return values.reshape(*scales.shape[:-1], -1)


def _codes(blocks: np.ndarray) -> np.ndarray:
    """uint8 [..., 32], in the order of the weights."""
    pairs = np.stack([blocks & np.uint8(15), blocks >> np.uint8(4)], axis=-1)
    return pairs.reshape(*blocks.shape[:-1], 32)
