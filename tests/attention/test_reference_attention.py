"""Paged attention against dense attention written out, over random shapes, chunks and blocks."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from octavo.attention.batch import AttentionBatch
from octavo.attention.reference import ReferenceAttention
from octavo.base.kv import KVGroup, KVLayout, Pool
from octavo.models.spec import AttentionSpec, LinearSpec, ModelSpec, NormSpec, ParamSpec

BLOCK = 4


def model(heads: int, kv_heads: int, dim: int, v_dim: int, window: int | None) -> ModelSpec:
    none = ParamSpec("none", (0,))
    line, norm = LinearSpec(none), NormSpec(none, 1e-6)
    attention = AttentionSpec(
        heads, kv_heads, dim, v_dim, 0.3, line, line, line, line, None, window=window
    )

    class Layer:
        pass

    layer = Layer()
    layer.attention = attention
    return ModelSpec("t", 8, 8, 64, none, (layer,), norm, line, (KVGroup(name="g", layers=(0,)),))


def backend(spec: ModelSpec, num_blocks: int) -> ReferenceAttention:
    attention = spec.layers[0].attention
    width = attention.num_kv_heads * (attention.head_dim + attention.v_head_dim)
    pool = Pool(page_bytes=4 * BLOCK * width, num_blocks=num_blocks, groups=(0,))
    layout = KVLayout(block_size=BLOCK, groups=spec.kv_groups, pools=(pool,))
    made = ReferenceAttention(spec, layout, torch.float32, torch.device("cpu"))
    for pages in made.pools:
        pages.fill_(float("nan"))  # what no one wrote must not matter
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


def run(made, lengths, tables, qkv, chunk_of):
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
        made = backend(model(heads, kv_heads, dim, v_dim, window), 60)
        outs = run(made, lengths, tables, qkv, lambda i: rng.randint(1, 9))
        for out, (q, k, v) in zip(outs, qkv, strict=True):
            assert (out - dense(q, k, v, window)).abs().max() < 1e-5


def test_physical_block_ids_change_no_bit():
    torch.manual_seed(1)
    qkv = [(torch.randn(19, 4, 8), torch.randn(19, 2, 8), torch.randn(19, 2, 8))]
    outs = []
    for table in ([1, 2, 3, 4, 5], [9, 3, 7, 1, 12]):
        made = backend(model(4, 2, 8, 8, None), 16)
        outs.append(run(made, [19], [table], qkv, lambda i: 6)[0])
    assert torch.equal(outs[0], outs[1])
