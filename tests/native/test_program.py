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
    program.linear("head", logits, last, [(head, None, 1.0)], False)
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
    assert all(seconds > 0 for seconds, _, _ in costs.values())
    assert costs["head"][1:] == [{"f32": 2 * 2 * 2 * VOCAB * HIDDEN}, 2 * head.nbytes]  # two steps


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


ONE_TOKEN = {
    "token_ids": np.array([1], np.int32),
    "positions": np.zeros((1, 1), np.int64),
    "row_starts": np.array([0, 1], np.int32),
    "context_lens": np.array([1], np.int32),
    "tables": [],
    "chosen": np.array([0], np.int64),
}


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"positions": np.zeros((1, 2), np.int64)}, "positions"),
        ({"positions": np.zeros((0, 1), np.int64)}, "axes"),
        ({"row_starts": np.zeros(3, np.int32)}, "row_starts"),
        ({"row_starts": np.array([0, 4], np.int32)}, "row_starts"),
        ({"context_lens": np.array([0], np.int32)}, "context_lens"),
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
    program.rope([1.0], 1.0, 0)
    program.take(**ONE_TOKEN)
    with pytest.raises(ValueError, match=message):
        program.take(**(ONE_TOKEN | changes))


def attend(native, **changes):
    """A program of one attention layer, over a pool of 3 pages."""
    program = native.Program(native.Pool(1))
    table, _ = matrix(native, VOCAB, 24, 0)
    x, y = program.buffer(24, False), program.buffer(8, False)
    program.embed(x, table)
    layer = {
        "memory": native.Memory(3 * 1024),
        "page_bytes": 1024,
        "k_offset": 0,
        "v_offset": 512,
        "block_size": 16,
        "kv_format": "f32",
        "group": 0,
        "heads": 1,
        "kv_heads": 1,
        "head_dim": 8,
        "v_head_dim": 8,
        "scale": 1.0,
    }
    program.attention(y, x, **(layer | changes))
    return program


@pytest.mark.parametrize(
    "context,tables,message",
    [
        (1, [], "KV group"),
        (17, [[[0]]], "context"),
        (48, [[[2, 1, 3]]], "pool"),
        (17, [[[2, -1]]], "pool"),
    ],
)
def test_a_context_that_is_not_in_the_pool_is_refused(context, tables, message):
    program = attend(library())
    held = {
        "context_lens": np.array([context], np.int32),
        "tables": [np.array(table, np.int32) for table in tables],
    }
    with pytest.raises(ValueError, match=message):
        program.take(**(ONE_TOKEN | held))
    held["tables"] = [np.array([[2, 1, 0]], np.int32)]
    program.take(**(ONE_TOKEN | held))


def test_blocks_that_slid_out_of_the_window_need_not_be_there():
    program = attend(library(), window=16)
    context = {"context_lens": np.array([33], np.int32)}
    program.take(**(ONE_TOKEN | context | {"tables": [np.array([[-1, 0, 1]], np.int32)]}))
    with pytest.raises(ValueError, match="pool"):
        program.take(**(ONE_TOKEN | context | {"tables": [np.array([[0, -1, 1]], np.int32)]}))


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"v_offset": 513}, "page"),
        ({"k_offset": -1}, "page"),
        ({"kv_heads": 0}, "kv_heads"),
        ({"block_size": 8}, "block_size"),
        ({"head_dim": 7}, "head_dim"),
        ({"heads": 2}, "fill"),
        ({"sinks": np.zeros(2, np.float32)}, "sinks"),
    ],
)
def test_attention_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        attend(library(), **changes)


def test_layers_that_do_not_fit_are_refused():
    native = library()
    program = native.Program(native.Pool(1))
    weight, _ = matrix(native, VOCAB, HIDDEN, 0)
    a, b = program.buffer(HIDDEN, False), program.buffer(HIDDEN, False)
    with pytest.raises(ValueError, match="outputs"):
        program.linear("l", b, a, [(weight, None, 1.0)], False)
    with pytest.raises(ValueError, match="sizes"):
        program.norm("n", b, a, np.ones(3, np.float32), 1e-5)
    square, _ = matrix(native, HIDDEN, HIDDEN, 0)
    chosen = program.buffer(HIDDEN, True)
    for to in (a, chosen):
        with pytest.raises(ValueError, match="buffers"):
            program.linear("l", to, a, [(square, None, 1.0)], False)
    with pytest.raises(ValueError, match="None"):
        program.linear("l", b, a, [(None, None, 1.0)], False)
    with pytest.raises(ValueError, match="choose"):
        program.choose("c", a, b)
    with pytest.raises(ValueError, match="embed"):
        program.embed(program.buffer(HIDDEN + 1, False), square)
    with pytest.raises(IndexError):
        program.rows(99)
    with pytest.raises(ValueError, match="segment"):
        program.start(1)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([("f32", 96, 10, 0, 0), ("f32", 96, 10, 0, 9)], "overlap"),
        ([("f32", 96, 10, 0, -1)], "overlap"),
        ([("f32", 96, 10, 0, 31)], "outputs"),
        ([("f32", 96, 10, 0, None)], "fit"),  # it leaves columns out, and does not say so
        ([("f32", 62, 10, 33, 0)], "multiples"),
        ([("f32", 64, 10, 34, 0)], "inputs"),
        ([("f32", 64, 10, -2, 0)], "inputs"),
        ([("f32", 63, 10, 2, 0)], "multiples"),
        ([("q8_0", 64, 10, 16, 0)], "multiples"),
        ([("int8", 64, 10, 0, 0)], "int8"),
        ([("int8", 64, 10, 32, 0)], "int8"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, message):
    native = library()
    program = native.Program(native.Pool(1))
    to, source = program.buffer(40, False), program.buffer(96, False)
    placed = [(native.Packed(f, n, k), None, 1.0, *where) for f, k, n, *where in parts]
    with pytest.raises(ValueError, match=message):
        program.linear("l", to, source, placed, False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, a, b, c: p.norm("n", a, b, None, 1e-5), "sizes"),
        (lambda p, a, b, c: p.norm("n", a, b, None, 1e-5, column=20, columns=21), "columns"),
        (lambda p, a, b, c: p.norm("n", a, b, None, 1e-5, column=-1, columns=21), "columns"),
        (lambda p, a, b, c: p.norm("n", b, b, None, 1e-5, column=97), "columns"),
        (lambda p, a, b, c: p.norm("n", b, b, None, 1e-5, groups=7), "groups"),
        (lambda p, a, b, c: p.norm("n", b, b, np.ones(47, np.float32), 1e-5, groups=2), "sizes"),
        (lambda p, a, b, c: p.norm("n", a, a, None, 1e-5, kind="batch"), "batch"),
        (lambda p, a, b, c: p.norm("n", a, c, None, 1e-5), "buffers"),
        (lambda p, a, b, c: p.activate("a", a, "tanh"), "tanh"),
        (lambda p, a, b, c: p.soft_cap("s", a, 0.0), "cap"),
        (lambda p, a, b, c: p.multiply("m", a, b, "tanh"), "tanh"),
        (lambda p, a, b, c: p.multiply("m", a, b, "none", column=57), "columns"),
        (lambda p, a, b, c: p.multiply("m", b, a, "none"), "columns"),
        (lambda p, a, b, c: p.multiply("m", a, c, "none"), "buffers"),
        (lambda p, a, b, c: p.copy("c", a, b), "columns"),
        (lambda p, a, b, c: p.copy("c", a, b, source_column=96), "columns"),
        (lambda p, a, b, c: p.copy("c", a, a), "buffers"),
        (lambda p, a, b, c: p.add("a", a, b), "sizes"),
        (lambda p, a, b, c: p.add("a", a, c), "buffers"),
    ],
)
def test_ops_on_rows_that_do_not_fit_are_refused(call, message):
    program = library().Program(library().Pool(1))
    with pytest.raises(ValueError, match=message):
        call(
            program, program.buffer(40, False), program.buffer(96, False), program.buffer(40, True)
        )


def test_what_a_caller_writes_is_read_in_every_form():
    """A norm leaves its rows in the form of the linear behind it, until the caller changes them."""
    native = library()
    program = native.Program(native.Pool(1))
    table, _ = matrix(native, VOCAB, HIDDEN, 0)
    blocks = native.Packed("int8", HIDDEN, HIDDEN)
    codes = np.random.default_rng(1).integers(-127, 128, (HIDDEN, HIDDEN)).astype(np.int8)
    native.pack_int8(blocks, codes, np.ones(HIDDEN, np.float32), 0)
    x, y, z = (program.buffer(HIDDEN, False) for _ in range(3))
    program.embed(x, table)
    program.norm("n", y, x, np.ones(HIDDEN, np.float32), 1e-5)
    program.linear("l", z, y, [(blocks, None, 1.0)], False)
    program.cut()
    program.linear("l", z, y, [(blocks, None, 1.0)], False)
    step(program, [4], [])
    once = program.rows(z).copy()
    program.rows(y)[:] *= 2
    program.start(1)
    program.wait()
    assert np.array_equal(program.rows(z), 2 * once)
