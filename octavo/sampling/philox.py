"""Counter-based noise: a uniform is a pure function of (seed, child, position).

Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. There is
no generator state to save, restore or roll back. NumPy only, so that any path can use it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]  # 32-bit words, kept in 64 bits so that products do not overflow

_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = np.array([[0x9E3779B9], [0xBB67AE85]], dtype=np.uint64)  # added to the key every round
_ROUNDS = np.arange(10, dtype=np.uint64)[:, None, None] * _WEYL
# Arrays, not scalars: numpy takes twice as long over those when there are few rows.
_LOW = np.array(0xFFFFFFFF, dtype=np.uint64)
_32 = np.array(32, dtype=np.uint64)
_11 = np.array(11, dtype=np.uint64)


def philox(counters: Words, keys: Words) -> Words:
    """Ten rounds over counters [4, n] with keys [2, n]; returns [4, n]."""
    even, odd = counters[0::2], counters[1::2]  # [2, n] each
    for key in keys + _ROUNDS & _LOW:
        products = even * _MULTIPLIERS
        even, odd = (products >> _32)[::-1] ^ odd ^ key, (products & _LOW)[::-1]
    return np.array([even[0], odd[0], even[1], odd[1]])


def uniforms(
    seeds: Sequence[int], children: Sequence[int], positions: Sequence[int]
) -> NDArray[np.float64]:
    """One number in [0, 1) with 53 random bits for each (seed, child, position); returns [n].

    The key is the 64-bit seed (signed or not), the counter is (position low, position high,
    child, 0). A 64-bit key has no room for the child; in the counter it separates streams just
    as well, since for one key Philox maps different counters to different outputs.
    """
    seed, position = _words(seeds), _words(positions)
    child = np.asarray(children, dtype=np.uint64)
    counters = np.array([position & _LOW, position >> _32, child, np.zeros_like(child)])
    word = philox(counters, np.array([seed & _LOW, seed >> _32]))
    bits = (word[1] << _32 | word[0]) >> _11
    numbers: NDArray[np.float64] = bits * 2.0**-53
    return numbers


def _words(values: Sequence[int]) -> Words:
    return np.array([value & (2**64 - 1) for value in values], dtype=np.uint64)
