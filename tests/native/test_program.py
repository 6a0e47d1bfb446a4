"""Programs by hand: segments with the caller's work between them, embeddings as input, errors."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.native.library import library, usable_variants

VARIANTS = usable_variants()
HIDDEN, VOCAB = 48, 80


def matrix(native, n: int, k: int, seed: int):
    values = np.random.default_rng(seed).standard_normal((n, k), np.float32)
    packed = native.Packed("f32", n, k)
    native.pack_float(packed, values, 0)
    return packed, values


def step(program, ids, chosen, embeddings=None) -> None:
    """One row from position 0, of a model without attention."""
    count = len(ids)
    program.take(
        token_ids=np.array(ids, np.int32),
        positions=np.arange(count)[None],
        row_starts=np.array([0, count], np.int32),
        context_lens=np.array([count], np.int32),
        tables=[],
        chosen=np.array(chosen, np.int64),
        embeddings=embeddings,
    )
    for segment in range(program.segments):
        program.start(segment)
        program.wait()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_segment_ends_where_the_caller_works_on_a_buffer(variant):
    native = library(variant)
    program = native.Program(native.Pool(2))
    table, embedding = matrix(native, VOCAB, HIDDEN, 0)
    head, weight = matrix(native, VOCAB, HIDDEN, 1)
    x, last, logits = (
        program.buffer(HIDDEN, False),
        program.buffer(HIDDEN, True),
        program.buffer(VOCAB, True),
    )
    program.embed(x, table)
    program.cut()
    program.choose("choose", last, x)
    program.linear("head", logits, last, [(head, None)], False)
    assert program.segments == 2
    step(program, [3, 5, 7], [2, 0])
    plain = embedding[[7, 3]] @ weight.T
    assert np.allclose(program.rows(logits), plain, rtol=1e-4, atol=1e-4)
    program.start(0)
    program.wait()
    program.rows(x)[:] *= 2
    program.start(1)
    program.wait()
    assert np.allclose(program.rows(logits), 2 * plain, rtol=1e-4, atol=1e-4)
    costs = {name: rest for name, *rest in program.costs()}
    assert list(costs) == ["embed", "choose", "head"]
    assert all(seconds > 0 for _, seconds, _, _ in costs.values())
    assert costs["head"][2:] == [2 * 2 * 2 * VOCAB * HIDDEN, 2 * head.nbytes]  # two steps


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_embeddings_stand_for_negative_ids(variant):
    native = library(variant)
    program = native.Program(native.Pool(1))
    table, embedding = matrix(native, VOCAB, HIDDEN, 0)
    x = program.buffer(HIDDEN, False)
    program.embed(x, table)
    given = np.random.default_rng(2).standard_normal((3, HIDDEN), np.float32)
    step(program, [4, -1, 6], [], given)
    assert np.array_equal(program.rows(x), np.stack([embedding[4], given[1], embedding[6]]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_of_any_size_follow_each_other(variant):
    """Buffers grow, and keep no trace of a larger step."""
    native = library(variant)
    program = native.Program(native.Pool(2))
    table, embedding = matrix(native, VOCAB, HIDDEN, 0)
    x, y = program.buffer(HIDDEN, False), program.buffer(HIDDEN, True)
    program.embed(x, table)
    program.choose("choose", y, x)
    for count in (1, 700, 3, 0, 1500):
        ids = np.random.default_rng(count).integers(0, VOCAB, count)
        step(program, ids, range(count))
        assert np.array_equal(program.rows(y), embedding[ids])


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"positions": np.zeros((1, 2), np.int64)}, "positions"),
        ({"row_starts": np.zeros(3, np.int32)}, "row_starts"),
        ({"row_starts": np.array([0, 4], np.int32)}, "row_starts"),
        ({"chosen": np.array([1], np.int64)}, "chosen"),
        ({"token_ids": np.array([VOCAB], np.int32)}, "token_ids"),
        ({"token_ids": np.array([-1], np.int32)}, "embeddings"),
        ({"embeddings": np.zeros((1, 5), np.float32)}, "embeddings"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    native = library()
    program = native.Program(native.Pool(1))
    table, _ = matrix(native, VOCAB, HIDDEN, 0)
    program.embed(program.buffer(HIDDEN, False), table)
    arrays = {
        "token_ids": np.array([1], np.int32),
        "positions": np.zeros((1, 1), np.int64),
        "row_starts": np.array([0, 1], np.int32),
        "context_lens": np.array([1], np.int32),
        "tables": [],
        "chosen": np.array([0], np.int64),
    }
    program.take(**arrays)
    with pytest.raises(ValueError, match=message):
        program.take(**(arrays | changes))


def test_layers_that_do_not_fit_are_refused():
    native = library()
    program = native.Program(native.Pool(1))
    weight, _ = matrix(native, VOCAB, HIDDEN, 0)
    a, b = program.buffer(HIDDEN, False), program.buffer(HIDDEN, False)
    with pytest.raises(ValueError, match="outputs"):
        program.linear("l", b, a, [(weight, None)], False)
    with pytest.raises(ValueError, match="sizes"):
        program.norm("n", b, a, np.ones(3, np.float32), 1e-5)
