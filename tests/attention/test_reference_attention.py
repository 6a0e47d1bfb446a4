"""Paged attention against dense attention written out, over random shapes, chunks and blocks."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from octavo.attention.batch import AttentionBatch
from octavo.attention.pages import kv_pages
from octavo.attention.reference import ReferenceAttention
from octavo.base.kv import KVGroup, KVLayout, Pool
from octavo.models.memory import kv_head_bytes
from octavo.models.spec import AttendSpec

BLOCK = 4


def attends(heads: int, kv_heads: int, dim: int, v_dim: int, window: int | None) -> AttendSpec:
    return AttendSpec(heads, kv_heads, dim, v_dim, 0.3, window)


def backend(spec: AttendSpec, num_blocks: int, kv_dtype: str = "float32") -> ReferenceAttention:
    token = spec.num_kv_heads * sum(kv_head_bytes(kv_dtype, dim) for dim in spec.kept_dims)
    pool = Pool(page_bytes=BLOCK * token, num_blocks=num_blocks, groups=(0,))
    groups = (KVGroup(name="g", layers=(0,)),)
    layout = KVLayout(block_size=BLOCK, groups=groups, pools=(pool,))
    made = ReferenceAttention({0: spec}, layout, kv_dtype, torch.device("cpu"))
    for pages in made.pools:
        pages.fill_(255)  # NaN: what no one wrote must not matter
    return made


def dense(q, k, v, window):
    """q [L, H, D] are the last L of the k [C, Hkv, D] tokens."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1).double(), v.repeat_interleave(group, 1).double()
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * 0.3
    at = torch.arange(len(k) - len(q), len(k))[:, None]
    key = torch.arange(len(k))[None]
    hidden = (key > at) | (key <= at - (window or len(k) + 1))
    probs = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", probs, v)


def batch(chunks: list[tuple[int, int]], tables: list[list[int]]) -> AttentionBatch:
    """chunks: (start, length) of each row."""
    starts = np.cumsum([0] + [n for _, n in chunks]).astype(np.int32)
    widest = max(map(len, tables))
    table = np.array([t + [0] * (widest - len(t)) for t in tables], dtype=np.int32)
    contexts = np.array([s + n for s, n in chunks], dtype=np.int32)
    return AttentionBatch(starts, contexts, [table], BLOCK)


def run(made, lengths, tables, qkv, chunk_of, after_step=lambda done: None):
    """Compute every sequence in chunks, several sequences a step; outputs by sequence."""
    done, outs = [0] * len(lengths), [[] for _ in lengths]
    while any(d < n for d, n in zip(done, lengths, strict=True)):
        rows = [i for i, n in enumerate(lengths) if done[i] < n]
        chunks = [(done[i], min(chunk_of(i), lengths[i] - done[i])) for i in rows]
        parts = [[x[s : s + n] for x in qkv[i]] for i, (s, n) in zip(rows, chunks, strict=True)]
        q, k, v = (torch.cat(x) for x in zip(*parts, strict=True))
        plan = made.plan(batch(chunks, [tables[i] for i in rows]))
        out = made.run(plan, 0, q, k, v).split([n for _, n in chunks])
        for i, (_, n), part in zip(rows, chunks, out, strict=True):
            outs[i].append(part)
            done[i] += n
        after_step(done)
    return [torch.cat(o) for o in outs]


@pytest.mark.parametrize("heads,kv_heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("window", [None, 1, 5])
def test_equals_dense_attention(heads, kv_heads, window):
    rng = random.Random(heads * 100 + kv_heads * 10 + (window or 0))
    torch.manual_seed(0)
    for _ in range(24):
        dim, v_dim = rng.choice([(8, 8), (16, 8), (8, 12)])
        lengths = [rng.randint(1, 30) for _ in range(rng.randint(1, 4))]
        wanted = [-(-n // BLOCK) for n in lengths]
        ids = rng.sample(range(1, 60), sum(wanted))
        tables = [[ids.pop() for _ in range(w)] for w in wanted]
        qkv = [
            (
                torch.randn(n, heads, dim),
                torch.randn(n, kv_heads, dim),
                torch.randn(n, kv_heads, v_dim),
            )
            for n in lengths
        ]
        made = backend(attends(heads, kv_heads, dim, v_dim, window), 60)
        outs = run(made, lengths, tables, qkv, lambda i: rng.randint(1, 9))
        for out, (q, k, v) in zip(outs, qkv, strict=True):
            assert (out - dense(q, k, v, window)).abs().max() < 1e-5


def test_physical_block_ids_change_no_bit():
    torch.manual_seed(1)
    qkv = [(torch.randn(19, 4, 8), torch.randn(19, 2, 8), torch.randn(19, 2, 8))]
    outs = []
    for table in ([1, 2, 3, 4, 5], [9, 3, 7, 1, 12]):
        made = backend(attends(4, 2, 8, 8, None), 16)
        outs.append(run(made, [19], [table], qkv, lambda i: 6)[0])
    assert torch.equal(outs[0], outs[1])


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("window", [None, 5])
def test_each_format_is_attention_over_what_it_keeps(kv_dtype, window):
    """Read by its own step too: whatever the chunks are, as if all had been written before."""
    torch.manual_seed(2)
    q, k, v = (torch.randn(23, heads, dim) for heads, dim in ((4, 8), (2, 8), (2, 12)))
    kept = []
    for x in (k, v):
        part = torch.empty((1, 23, 2, kv_head_bytes(kv_dtype, x.shape[-1])), dtype=torch.uint8)
        pages = kv_pages(kv_dtype, part)
        pages.write(torch.zeros(23, dtype=torch.int64), torch.arange(23), x)
        kept.append(pages.read(torch.tensor([0]), torch.float32)[0])
        assert (kept[-1] - x).abs().max() <= (0.02 if kv_dtype == "int8" else 0.01) * x.abs().max()
    for chunk in (1, 4, 7, 23):
        made = backend(attends(4, 2, 8, 12, window), 16, kv_dtype)
        (out,) = run(made, [23], [[9, 3, 7, 1, 12, 4]], [(q, k, v)], lambda i, n=chunk: n)
        assert (out - dense(q, *kept, window)).abs().max() < 1e-5


@pytest.mark.parametrize("chunk", [1, 3])
def test_blocks_that_slid_out_of_the_window_are_not_read(chunk):
    torch.manual_seed(3)
    q, k, v = (torch.randn(23, heads, 8) for heads in (4, 2, 2))
    made, table = backend(attends(4, 2, 8, 8, 5), 16), [9, 3, 7, 1, 12, 4]

    def give_away(done: list[int]) -> None:
        """Some blocks to others, who write NaN; the rest become the null block."""
        for block in range(max(0, done[0] + 1 - 5) // BLOCK):
            made.pools[0][table[block]] = 255
            table[block] *= block % 2

    (out,) = run(made, [23], [table], [(q, k, v)], lambda i: chunk, give_away)
    assert (out - dense(q, k, v, 5)).abs().max() < 1e-5


def test_what_is_no_number_is_nan_in_int8_and_stays_with_its_head():
    part = torch.empty((2, BLOCK, 2, 8 + 4), dtype=torch.uint8)
    pages, x = kv_pages("int8", part), torch.ones(3, 2, 8)
    for token, bad in enumerate((torch.inf, -torch.inf, torch.nan)):
        x[token, 1, 3] = bad
    pages.write(torch.ones(3, dtype=torch.int64), torch.arange(3), x)
    read = pages.read(torch.tensor([1]), torch.float32)[0, :3]
    assert read[:, 1].isnan().all()
    assert torch.equal(read[:, 0], x[:, 0])
