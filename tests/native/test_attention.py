"""Native attention over paged KV: against float64 written out, against the torch backend, and
against itself, bit for bit, however its rows are batched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.attention.batch import AttentionBatch
from octavo.attention.pages import kv_pages
from octavo.attention.reference import ReferenceAttention
from octavo.base.kv import KVGroup, KVLayout
from octavo.base.kv import Pool as KVPool
from octavo.layers.context import StepContext
from octavo.layers.ops import Norm, rotate
from octavo.models.spec import AttendSpec, NormSpec, ParamSpec, RopeSpec
from octavo.native.kv import KV_FORMATS
from octavo.native.library import library, usable_variants

FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
FORMATS = (*FLOATS, "int8")
DTYPES = {format: dtype for dtype, format in KV_FORMATS.items()}
Row = tuple[int, int, np.ndarray]  # sequence, position of its first token, qkv [tokens, width]


@pytest.fixture(scope="module", params=usable_variants())
def native(request: pytest.FixtureRequest) -> Any:
    return library(request.param)


@dataclass(frozen=True)
class Shape:
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    v_head_dim: int = 32
    format: str = "f32"
    block_size: int = 16
    window: int = 0
    soft_cap: float = 0.0
    sinks: tuple[float, ...] | None = None
    k_offset: int = 0
    chunk: int = 0
    value_column: int = -1  # V is a part of K

    @property
    def stored_v_dim(self) -> int:
        return self.v_head_dim if self.value_column < 0 else 0

    @property
    def width(self) -> int:
        return (self.heads + self.kv_heads) * self.head_dim + self.kv_heads * self.stored_v_dim

    @property
    def part_bytes(self) -> int:
        slots = self.kv_heads * self.block_size
        dims = [self.head_dim, self.v_head_dim] if self.stored_v_dim else [self.head_dim]
        return slots * sum(self.token_bytes(dim) for dim in dims)

    def token_bytes(self, dim: int) -> int:
        """Of a token's keys (or values) in one head."""
        return dim + 4 if self.format == "int8" else dim * FLOATS[self.format].itemsize

    def texts(self, seed: int, lengths: Sequence[int]) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.normal(size=(n, self.width)).astype(np.float32) for n in lengths]

    def split(self, qkv: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, k, v, each [tokens, heads, dim]."""
        q, k, v = np.split(
            qkv, np.cumsum([self.heads * self.head_dim, self.kv_heads * self.head_dim]), axis=1
        )
        q, k = (x.reshape(len(x), -1, self.head_dim) for x in (q, k))
        if self.value_column < 0:
            return q, k, v.reshape(len(v), self.kv_heads, self.v_head_dim)
        return q, k, k[..., self.value_column : self.value_column + self.v_head_dim]

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """As the format keeps `x` [..., dim]."""
        if self.format == "int8":
            codes, scales = int8(x)
            return codes * scales
        return torch.from_numpy(x.copy()).to(FLOATS[self.format]).float().numpy()


def int8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from -127 to 127 and a scale for each of the last axis, float32."""
    most = np.abs(x).max(axis=-1, keepdims=True)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    return np.round(x * inverse), most / np.float32(127)


@dataclass
class Cache:
    """Pages of sequences of the given lengths, full of NaN, and one layer over them."""

    native: Any
    shape: Shape
    lengths: list[int]
    threads: int = 2
    seed: int = 0
    pages: np.ndarray | None = None
    tables: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        shape = self.shape
        self.pool = self.native.Pool(self.threads)
        blocks = [-(-n // shape.block_size) for n in self.lengths]
        ids = 1 + np.random.default_rng(self.seed).permutation(sum(blocks))
        self.tables = np.zeros((len(blocks), max(blocks)), np.int32)
        for row, part in zip(self.tables, np.split(ids, np.cumsum(blocks)[:-1]), strict=True):
            row[: len(part)] = part
        if self.pages is None:
            size = shape.k_offset + shape.part_bytes
            self.pages = np.full((1 + sum(blocks), size), 0xFF, np.uint8)
        sinks = None if shape.sinks is None else np.array(shape.sinks, np.float32)
        self.layer = self.native.AttentionLayer(
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            v_head_dim=shape.v_head_dim,
            scale=shape.head_dim**-0.5,
            window=shape.window,
            chunk=shape.chunk,
            soft_cap=shape.soft_cap,
            sinks=sinks,
            format=shape.format,
            block_size=shape.block_size,
            k_offset=shape.k_offset,
            value_column=shape.value_column,
        )

    def write(self, rows: Sequence[Row], **prepare: Any) -> tuple[np.ndarray, ...]:
        """K and V of the rows into the pages; returns qkv and the rest of what `attend` takes."""
        qkv = np.concatenate([x for _, _, x in rows])
        starts = np.cumsum([0] + [len(x) for _, _, x in rows]).astype(np.int32)
        contexts = np.array([start + len(x) for _, start, x in rows], np.int32)
        step = (qkv, self.pages, starts, contexts, self.tables[[row[0] for row in rows]])
        self.layer.prepare(self.pool, *step, **prepare)
        return step

    def step(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """Each row's output, [tokens, heads, v_head_dim]."""
        step = self.write(rows)
        out = np.full((len(step[0]), self.shape.heads, self.shape.v_head_dim), np.nan, np.float32)
        self.layer.attend(self.pool, *step, out)
        return np.split(out, step[2][1:-1])


def whole(cache: Cache, texts: list[np.ndarray]) -> list[np.ndarray]:
    return [cache.step([(i, 0, text)])[0] for i, text in enumerate(texts)]


def exact(shape: Shape, qkv: np.ndarray, count: int) -> np.ndarray:
    """The output of the last `count` tokens of a text in float64."""
    q, k, v = shape.split(qkv)
    group = shape.heads // shape.kv_heads
    k, v = (shape.rounded(x).astype(np.float64).repeat(group, axis=1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q[-count:].astype(np.float64), k) * shape.head_dim**-0.5
    if shape.soft_cap:
        scores = shape.soft_cap * np.tanh(scores / shape.soft_cap)
    query, key = np.arange(len(q))[-count:, None], np.arange(len(q))
    hidden = (key > query) | (key <= query - (shape.window or len(q)))
    if shape.chunk:
        hidden |= key < query // shape.chunk * shape.chunk
    weights = np.where(hidden, 0.0, np.exp(scores))
    total = weights.sum(-1, keepdims=True)
    if shape.sinks is not None:
        total += np.exp(np.array(shape.sinks, np.float64))[:, None, None]
    return np.einsum("hqk,khd->qhd", weights / total, v)


def tolerance(native: Any, shape: Shape) -> float:
    """Factors are rounded to bf16 where the machine multiplies those."""
    return 3e-2 if native.variant == "avx512bf16" and shape.format == "bf16" else 1e-5


SHAPES = [
    *(Shape(format=f, block_size=b) for f in FORMATS for b in (16, 32, 64)),
    *(Shape(heads=g * 2, format=f) for g in (1, 2, 3, 8) for f in FORMATS),
    *(Shape(2, 1, d, d, f) for d in (40, 64, 80, 96, 112, 128, 256) for f in FORMATS),
    *(Shape(2, 1, 192, 128, f, 32) for f in FORMATS),
    *(Shape(2, 1, 34, 50, f) for f in FORMATS),
    *(Shape(window=w, format=f) for w in (1, 5, 16, 100) for f in FORMATS),
    *(Shape(soft_cap=2.5, format=f, k_offset=192) for f in FORMATS),
    *(Shape(chunk=c, format=f) for c in (1, 40, 256, 300) for f in FORMATS),
    *(Shape(h, 1, 576, 512, f, value_column=64) for h in (1, 16) for f in FLOATS),
    *(Shape(4, 2, 34, 18, f, 32, value_column=6) for f in FLOATS),
    *(Shape(2, 1, 90, 90, f, value_column=0, window=20) for f in FLOATS),
    Shape(128, 1, 72, 64, "bf16", value_column=8, soft_cap=1.5),
    Shape(sinks=(0.0, 1.0, -2.0, 3.0, 0.5, 7.0)),
    Shape(sinks=(0.0, 1.0, -2.0, 3.0, 0.5, 7.0), window=20, soft_cap=1.5, format="bf16"),
    Shape(sinks=(0.0, 1.0, -2.0, 3.0, 0.5, 7.0), window=20, soft_cap=1.5, format="int8"),
    Shape(heads=110, kv_heads=1, format="f16"),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_of_any_length_equal_float64(native: Any, shape: Shape) -> None:
    rows = [(1, 1), (2, 2), (17, 17), (300, 300), (1500, 1), (700, 17), (513, 2), (256, 1)]
    if native.variant == "portable" or shape.heads > 100:
        rows = rows[:3] + rows[4:]
    texts = shape.texts(1, [context for context, _ in rows])
    cache = Cache(native, shape, [len(text) for text in texts])
    past = [(i, 0, texts[i][: c - n]) for i, (c, n) in enumerate(rows) if c > n]
    cache.write(past)
    out = cache.step([(i, c - n, texts[i][c - n :]) for i, (c, n) in enumerate(rows)])
    for text, (_, count), found in zip(texts, rows, out, strict=True):
        wanted, limit = exact(shape, text, count), tolerance(native, shape)
        np.testing.assert_allclose(found, wanted, rtol=limit, atol=limit)


# ---- the bits of a row depend on that row alone ----

PLAY = [
    Shape(),
    Shape(9, 3, 64, 64, "bf16", 32),
    Shape(2, 2, 40, 50, "f16", 64),
    Shape(8, 1, 34, 50, "bf16", window=19),
    Shape(4, 2, 32, 48, window=100, soft_cap=3.0, sinks=(0.0, 1.0, -2.0, 3.0)),
    Shape(9, 3, 64, 64, "int8", 32),
    Shape(4, 2, 32, 32, "bf16", chunk=50),
    *(Shape(16, 1, 72, 66, f, value_column=6) for f in FLOATS),
    Shape(4, 2, 34, 34, "f16", 32, window=19, value_column=0),
    Shape(4, 2, 34, 50, "int8", window=19, soft_cap=3.0, sinks=(0.0, 1.0, -2.0, 3.0)),
]


@st.composite
def plays(draw: st.DrawFn) -> tuple[Shape, list[int], list[list[tuple[int, int]]], int, int]:
    """A shape, lengths of texts, steps of (text, tokens), threads and a seed for page ids."""
    lengths = draw(st.lists(st.sampled_from([1, 2, 15, 17, 64, 257, 300]), min_size=1, max_size=4))
    left, steps = dict(enumerate(lengths)), []
    while left:
        rows = draw(st.lists(st.sampled_from(sorted(left)), min_size=1, unique=True))
        steps.append(
            [(i, draw(st.one_of(st.just(left[i]), st.integers(1, left[i])))) for i in rows]
        )
        for i, count in steps[-1]:
            left[i] -= count
            if not left[i]:
                del left[i]
    seed = draw(st.integers(0, 99))
    return draw(st.sampled_from(PLAY)), lengths, steps, draw(st.sampled_from([1, 2, 3])), seed


@given(plays())
@settings(max_examples=60)
def test_bits_do_not_depend_on_batch_chunks_pages_or_threads(native: Any, play: Any) -> None:
    shape, lengths, steps, threads, seed = play
    texts = shape.texts(2, lengths)
    wanted = whole(Cache(native, shape, lengths, threads=1), texts)
    cache, done = Cache(native, shape, lengths, threads, seed), [0] * len(lengths)
    outs: list[list[np.ndarray]] = [[] for _ in lengths]
    for step in steps:
        rows = [(i, done[i], texts[i][done[i] : done[i] + n]) for i, n in step]
        for (i, n), out in zip(step, cache.step(rows), strict=True):
            outs[i].append(out)
            done[i] += n
    for found, text in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(np.concatenate(found), text)


@pytest.mark.parametrize("shape", PLAY, ids=str)
def test_long_contexts_are_split_over_threads_without_a_trace(native: Any, shape: Shape) -> None:
    lengths = [1500, 40, 1025]
    texts = shape.texts(3, lengths)
    outs = []
    for threads, order in [(1, [0, 1, 2]), (2, [2, 0, 1]), (7, [1, 2, 0])]:
        cache = Cache(native, shape, lengths, threads, seed=threads)
        cache.write([(i, 0, texts[i][:-1]) for i in order])
        last = [(i, lengths[i] - 1, texts[i][-1:]) for i in order]
        together = cache.step(last)
        alone = [cache.step([row])[0] for row in last]
        np.testing.assert_array_equal(together, alone)
        outs.append([alone[order.index(i)] for i in range(3)])
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


@pytest.mark.parametrize("format", FORMATS)
def test_blocks_that_slid_out_of_the_window_may_be_gone(native: Any, format: str) -> None:
    check_that_blocks_may_be_gone(native, Shape(format=format, window=33), 691 - 33)


@pytest.mark.parametrize("format", FORMATS)
def test_blocks_of_chunks_before_may_be_gone(native: Any, format: str) -> None:
    check_that_blocks_may_be_gone(native, Shape(format=format, chunk=300), 600)


def check_that_blocks_may_be_gone(native: Any, shape: Shape, oldest: int) -> None:
    """At position 690, from which the first that is seen is `oldest`."""
    (text,) = shape.texts(4, [700])
    wanted = whole(Cache(native, shape, [700]), [text])[0]
    cache = Cache(native, shape, [700])
    cache.write([(0, 0, text[:690])])
    cache.tables[0, : oldest // 16] = 0
    np.testing.assert_array_equal(cache.step([(0, 690, text[690:])])[0], wanted[690:])


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_no_number_stays_with_its_token(native: Any, format: str) -> None:
    shape = Shape(format=format, heads=2)
    (text,) = shape.texts(5, [300])
    wanted = whole(Cache(native, shape, [300]), [text])[0]
    for bad in (130, 256, 299):
        poisoned = text.copy()
        poisoned[bad, shape.heads * shape.head_dim :] = np.inf
        found = whole(Cache(native, shape, [300]), [poisoned])[0]
        np.testing.assert_array_equal(found[:bad], wanted[:bad])
        assert not np.isfinite(found[bad:]).any()


# ---- pages ----


def read_page(shape: Shape, page: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """K [block_size, kv_heads, head_dim] and V of one page, as the layout's drawing says."""
    subs, heads = shape.block_size // 16, shape.kv_heads
    dims = (shape.head_dim, shape.v_head_dim)
    ends = np.cumsum([shape.block_size * heads * shape.token_bytes(dim) for dim in dims])
    parts = np.split(page[shape.k_offset :], ends)[:2]
    if shape.format == "int8":
        (k, k_scales), (v, v_scales) = (read_int8(p.reshape(subs, heads, -1)) for p in parts)
    else:
        dtype = FLOATS[shape.format]
        k, v = (torch.from_numpy(p.copy()).view(dtype).float().numpy() for p in parts)
    if shape.format == "bf16":
        k = k.reshape(subs, heads, shape.head_dim // 2, 16, 2).transpose(0, 3, 1, 2, 4)
        v = v.reshape(subs, heads, 8, shape.v_head_dim, 2).transpose(0, 2, 4, 1, 3)
    else:
        k = k.reshape(subs, heads, shape.head_dim, 16).transpose(0, 3, 1, 2)
        v = v.reshape(subs, heads, 16, shape.v_head_dim).transpose(0, 2, 1, 3)
    k = k.reshape(shape.block_size, heads, shape.head_dim)
    v = v.reshape(shape.block_size, heads, shape.v_head_dim)
    return (k * k_scales, v * v_scales) if shape.format == "int8" else (k, v)


def read_int8(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes, and the scales [block_size, kv_heads, 1] of tokens and heads."""
    codes, scales = np.split(part, [part.shape[-1] - 16 * 4], axis=-1)
    floats = np.ascontiguousarray(scales).view(np.float32).transpose(0, 2, 1)
    return codes.view(np.int8), floats.reshape(-1, part.shape[1], 1)


@pytest.mark.parametrize("rotary_dim", [0, 20, 34])
@pytest.mark.parametrize("format", FORMATS)
def test_prepare_does_what_the_torch_layers_do(native: Any, format: str, rotary_dim: int) -> None:
    shape = Shape(4, 2, 34, 18, format, 32)
    rng = np.random.default_rng(6)
    norms = rng.normal(1, 0.2, (2, shape.head_dim)).astype(np.float32)
    (text,) = shape.texts(7, [40])
    q, k, v = (torch.from_numpy(x.copy()) for x in shape.split(text))
    q, k = (torch_norm(x, norm, 1e-5) for x, norm in zip((q, k), norms, strict=True))
    options: dict[str, Any] = {"q_norm": norms[0], "k_norm": norms[1], "eps": 1e-5}
    if rotary_dim:
        cos, sin = (rng.normal(size=(40, rotary_dim // 2)).astype(np.float32) for _ in range(2))
        q, k = (rotate(x, *(torch.from_numpy(t)[:, None] for t in (cos, sin))) for x in (q, k))
        options |= {"cos": cos, "sin": sin}
    cache = Cache(native, shape, [40])
    qkv = cache.write([(0, 0, text)], **options)[0]
    found_q, found_k, found_v = shape.split(qkv)
    np.testing.assert_allclose(found_q, q, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found_k, k, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found_v, v)
    pages = [read_page(shape, cache.pages[page]) for page in cache.tables[0]]
    for part, values in zip(zip(*pages, strict=True), (found_k, found_v), strict=True):
        stored = np.concatenate(part)
        np.testing.assert_array_equal(stored[:40], shape.rounded(values))
        assert np.isnan(stored[40:]).all()


def torch_norm(x: torch.Tensor, weight: np.ndarray, eps: float) -> torch.Tensor:
    param = ParamSpec("norm", weight.shape)

    class Params:
        def get(self, spec: ParamSpec) -> torch.Tensor:
            return torch.from_numpy(weight)

    return Norm(NormSpec(param, eps), Params())(x)


ONES = np.ones(34, np.float32)
NUMBERS = {
    "zeros": 0 * ONES,
    "zeros, signed": -0.0 * ONES,
    "too small to count": 1e-31 * ONES,
    "small": 1.1e-30 * ONES,
    "one among zeros": np.eye(1, 34, 20, dtype=np.float32)[0],
    "large": 3e38 * np.linspace(-1, 1, 34, dtype=np.float32),
    "drawn": np.random.default_rng(9).normal(size=34).astype(np.float32),
    "halves": (np.arange(34, dtype=np.float32) - 0.5) * 127 / 32.5,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_int8_is_the_nearest_code_times_a_scale(native: Any, name: str) -> None:
    """As in the torch twin, to the last bit; at most half a scale away."""
    shape, x = Shape(2, 1, 34, 34, "int8"), NUMBERS[name]
    cache = Cache(native, shape, [16])
    cache.write([(0, 0, np.tile(np.concatenate([ONES, ONES, x, x]), (16, 1)))])
    twin = kv_pages("int8", torch.empty((2, 16, 1, 34 + 4), dtype=torch.uint8))
    block, offsets = torch.ones(16, dtype=torch.int64), torch.arange(16)
    twin.write(block, offsets, torch.from_numpy(np.tile(x, (16, 1, 1))))
    wanted = twin.read(block[:1], torch.float32)[0].numpy()
    for stored in read_page(shape, cache.pages[1]):
        np.testing.assert_array_equal(stored, wanted)
    assert (np.abs(wanted - x) <= np.abs(x).max() / 127 * 0.50001 + 1e-30).all()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("part", ["k", "v"])
def test_one_number_that_is_none_is_seen_in_int8(native: Any, part: str, bad: float) -> None:
    """By the tokens and heads that see it; not by another sequence of the same step."""
    shape = Shape(2, 2, format="int8")
    texts = shape.texts(5, [300, 280])
    cache = Cache(native, shape, [300, 280])
    wanted = cache.step([(i, 0, text) for i, text in enumerate(texts)])
    poisoned = texts[0].copy()
    poisoned[130, (shape.heads + (shape.kv_heads if part == "v" else 0)) * shape.head_dim] = bad
    found, other = cache.step([(0, 0, poisoned), (1, 0, texts[1])])
    np.testing.assert_array_equal(other, wanted[1])
    np.testing.assert_array_equal(found[:130], wanted[0][:130])
    np.testing.assert_array_equal(found[130:, 1], wanted[0][130:, 1])
    assert np.isnan(found[130:, 0]).all()


def test_rope_table_is_that_of_the_torch_layers(native: Any) -> None:
    inv_freq = tuple((10_000.0 ** (-np.arange(16) / 16)).tolist())
    positions = np.array([0, 1, 2, 500, 8191, 100_000], np.int64)
    cos, sin = np.empty((2, 6, 16), np.float32)
    native.rope_table(native.Pool(2), positions, np.array(inv_freq, np.float32), 1.25, cos, sin)
    context = StepContext(torch.from_numpy(positions), lambda *_: torch.empty(0))
    wanted = context.rope(RopeSpec(32, inv_freq, 1.25), torch.float32)
    for found, table in zip((cos, sin), wanted, strict=True):
        np.testing.assert_allclose(found, table[:, 0], rtol=0, atol=3e-7)


@pytest.mark.parametrize("format", FORMATS)
def test_two_groups_share_pages_as_in_the_torch_backend(native: Any, format: str) -> None:
    """Group a: two layers with 2 KV heads; group b: one with 4 and a window. Pages are equal."""
    first = Shape(4, 2, 32, 16, format)
    shapes = [first, replace(first, k_offset=first.part_bytes), Shape(8, 4, 32, 16, format)]
    shapes[2] = replace(shapes[2], window=30)
    lengths, count = [200, 35, 1], [5, 35, 1]
    owners = ["a", "a", "b"]
    pages = np.full((64, 2 * first.part_bytes), 0xFF, np.uint8)
    caches = [Cache(native, shape, lengths, pages=pages) for shape in shapes]
    caches[2].tables += caches[0].tables.max() * (caches[2].tables > 0)  # blocks of their own
    starts = np.cumsum([0, *count]).astype(np.int32)
    contexts = np.array(lengths, np.int32)
    torch_layers = torch_backend(shapes, owners, len(pages))
    for layer, (cache, shape) in enumerate(zip(caches, shapes, strict=True)):
        texts = shape.texts(8 + layer, lengths)
        tables = [caches[0].tables, caches[2].tables]
        for sizes in (lengths, count):  # all of it, then the end again
            rows = [
                (i, n - c, texts[i][n - c :])
                for i, (n, c) in enumerate(zip(lengths, sizes, strict=True))
            ]
            found = np.concatenate(cache.step(rows))
            starts = np.cumsum([0, *sizes]).astype(np.int32)
            plan = torch_layers.plan(AttentionBatch(starts, contexts, tables, 16))
            qkv = shape.split(np.concatenate([row[2] for row in rows]))
            parts = (torch.from_numpy(x.copy()).to(FLOATS.get(format)) for x in qkv)
            wanted = torch_layers.run(plan, layer, *parts).float()
            limit = 3e-2 if format in ("bf16", "f16") else 1e-5  # torch rounds q and out to these
            np.testing.assert_allclose(found, wanted, rtol=limit, atol=limit)


def torch_backend(shapes: list[Shape], owners: list[str], blocks: int) -> ReferenceAttention:
    attends = {
        n: AttendSpec(
            s.heads, s.kv_heads, s.head_dim, s.v_head_dim, s.head_dim**-0.5, s.window or None
        )
        for n, s in enumerate(shapes)
    }
    groups = tuple(
        KVGroup(name=name, layers=tuple(i for i, owner in enumerate(owners) if owner == name))
        for name in ("a", "b")
    )
    pool = KVPool(page_bytes=2 * shapes[0].part_bytes, num_blocks=blocks, groups=(0, 1))
    layout = KVLayout(block_size=16, groups=groups, pools=(pool,))
    return ReferenceAttention(attends, layout, DTYPES[shapes[0].format], torch.device("cpu"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"heads": 7},
        {"head_dim": 33},
        {"block_size": 24},
        {"format": "f8"},
        {"window": 5, "chunk": 5},
        {"chunk": -1},
        {"value_column": 2},
        {"value_column": 1, "v_head_dim": 30},
        {"value_column": 0, "v_head_dim": 31},
        {"value_column": 0, "format": "int8"},
    ],
)
def test_shapes_that_no_kernel_reads_are_refused(native: Any, wrong: dict[str, Any]) -> None:
    shape = {"heads": 4, "kv_heads": 2, "head_dim": 32, "v_head_dim": 32, "scale": 1.0}
    native.AttentionLayer(**shape)
    with pytest.raises(ValueError):
        native.AttentionLayer(**(shape | wrong))
