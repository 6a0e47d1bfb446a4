from __future__ import annotations

import numpy as np
import pytest

from octavo.sampling.philox import philox, uniforms

ONES = 0xFFFFFFFF

# Known answers published with Random123 (kat_vectors, philox4x32 with 10 rounds).
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def test_known_answers_together() -> None:
    counters, keys, answers = (
        np.array(part, dtype=np.uint64).T for part in zip(*KNOWN, strict=True)
    )
    assert np.array_equal(philox(counters, keys), answers)


def test_counter_words_are_position_child_zero() -> None:
    [found] = uniforms([0xA4093822 | 0x299F31D0 << 32], [7], [5 | 3 << 32])
    counter = np.array([[5], [3], [7], [0]], dtype=np.uint64)
    word = philox(counter, np.array([[0xA4093822], [0x299F31D0]], dtype=np.uint64))[:, 0]
    assert found == ((int(word[1]) << 32 | int(word[0])) >> 11) / 2**53


def test_signed_and_unsigned_seeds_agree() -> None:
    signed, unsigned = [-1, -(2**63)], [2**64 - 1, 2**63]
    assert np.array_equal(uniforms(signed, [0, 1], [2, 3]), uniforms(unsigned, [0, 1], [2, 3]))


def test_streams_differ_by_seed_child_and_position() -> None:
    grid = [(s, c, p) for s in (0, 1, -1, 1 << 32) for c in range(8) for p in (0, 1, 2, 1 << 32)]
    assert len(set(uniforms(*zip(*grid, strict=True)))) == len(grid)


def test_a_number_does_not_depend_on_its_neighbours() -> None:
    many = uniforms(range(50), [3] * 50, range(100, 150))
    assert [uniforms([i], [3], [100 + i])[0] for i in range(50)] == list(many)


@pytest.mark.parametrize("axis", ["seed", "child", "position"])
def test_uniform_along_every_axis(axis: str) -> None:
    n = 100_000
    fixed, moving = [42] * n, range(n)
    arguments = [moving if axis == name else fixed for name in ("seed", "child", "position")]
    found = uniforms(*arguments)
    assert found.min() >= 0 and found.max() < 1
    expected = np.arange(n) / n
    assert np.abs(np.sort(found) - expected).max() < 1.95 / np.sqrt(n)  # Kolmogorov, 0.1 %
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 4 / np.sqrt(n)
    assert np.any(found * 2**32 % 1 != 0), "more than 32 bits are used"
