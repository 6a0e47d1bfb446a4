"""Attention as an op of a program: what is done to q and k before it, and which tokens it sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.native.library import library, usable_variants

HEADS, KV_HEADS, DIM, PAGE = 4, 2, 16, 16


@pytest.fixture(scope="module", params=usable_variants())
def native(request: pytest.FixtureRequest) -> Any:
    return library(request.param)


class Layer:
    """One layer over one sequence, in float32, whose pages are full of NaN at first."""

    def __init__(self, native: Any, blocks: int, width: int, out: int, **options: Any) -> None:
        self.program = program = native.Program(native.Pool(2))
        program.embed(program.buffer(1, False), native.Packed("f32", 1, 1))
        rope = options.pop("rope", None)
        inv_freq, factor = rope or ([1.0], 1.0)
        number = program.rope(inv_freq, factor, 0)
        program.cut()
        self.source, self.out = program.buffer(width, False), program.buffer(out, False)
        shape = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "v_head_dim": DIM}
        shape |= {
            "v_offset": KV_HEADS * DIM * PAGE * 4,
            "page_bytes": 2 * KV_HEADS * DIM * PAGE * 4,
        }
        shape |= options
        memory = native.Memory((1 + blocks) * shape["page_bytes"])
        memory.data[:] = 0xFF
        program.attention(
            self.out, self.source, memory=memory, k_offset=0, block_size=PAGE, group=0,
            **({"kv_format": "f32", "scale": 0.25, "rope": number if rope else -1} | shape),
        )  # fmt: skip
        self._table = 1 + np.arange(blocks, dtype=np.int32)[None]

    def run(self, qkv: np.ndarray, first: int = 0, table: np.ndarray | None = None) -> np.ndarray:
        """The layer's output for tokens at `first` and behind it."""
        count = len(qkv)
        self.program.take(
            token_ids=np.zeros(count, np.int32),
            positions=first + np.arange(count)[None],
            row_starts=np.array([0, count], np.int32),
            context_lens=np.array([first + count], np.int32),
            tables=[self._table if table is None else table],
            chosen=np.zeros(0, np.int64),
        )
        self.program.start(0)
        self.program.wait()
        self.program.rows(self.source)[:] = qkv
        self.program.start(1)
        self.program.wait()
        return self.program.rows(self.out).copy()

    def prepared(self) -> np.ndarray:
        """q, k and v of the last step, as they were attended."""
        return self.program.rows(self.source).copy()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rotated(x: np.ndarray, inv_freq: np.ndarray, factor: float) -> np.ndarray:
    """float64 [tokens, heads, dim]"""
    angles = np.arange(len(x))[:, None] * inv_freq
    cos, sin = (factor * f(angles)[:, None] for f in (np.cos, np.sin))
    half = len(inv_freq)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def normed(x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
    scaled = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    return scaled if weight is None else scaled * weight


@pytest.mark.parametrize("norm_after_rope", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("temper", [None, (0.1, 8.0, 1.0), (0.5, 3.0, 0.0)])
def test_q_and_k_are_normed_rotated_and_tempered(
    native: Any, norm_after_rope: bool, weighted: bool, temper: tuple[float, ...] | None
) -> None:
    width, count = (HEADS + 2 * KV_HEADS) * DIM, 30
    inv_freq = np.array([1.0, 0.3, 0.01])
    weight = normal(DIM, seed=1) if weighted else None
    layer = Layer(
        native, 2, width, HEADS * DIM, rope=(inv_freq.tolist(), 1.2), temper=temper,
        q_norm=(weight, 1e-3), k_norm=(None, 1e-5), norm_after_rope=norm_after_rope,
    )  # fmt: skip
    qkv = normal(count, width)
    layer.run(qkv)
    q, k, v = np.split(qkv.astype(np.float64), [HEADS * DIM, (HEADS + KV_HEADS) * DIM], axis=1)

    def prepared(x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
        x = x.reshape(count, -1, DIM)
        if norm_after_rope:
            return normed(rotated(x, inv_freq, 1.2), weight, eps)
        return rotated(normed(x, weight, eps), inv_freq, 1.2)

    q, k = prepared(q, weight, 1e-3), prepared(k, None, 1e-5)
    if temper is not None:
        scale, length, offset = temper
        q *= 1 + scale * np.log(np.floor((np.arange(count) + offset) / length) + 1)[:, None, None]
    wanted = np.concatenate([q.reshape(count, -1), k.reshape(count, -1), v], axis=1)
    np.testing.assert_allclose(layer.prepared(), wanted, rtol=2e-5, atol=2e-5)


def test_a_temper_does_not_depend_on_how_a_text_is_cut(native: Any) -> None:
    width = (HEADS + 2 * KV_HEADS) * DIM
    options: dict[str, Any] = {"temper": (0.3, 7.0, 1.0), "chunk": 11}
    qkv = normal(60, width)
    whole = Layer(native, 4, width, HEADS * DIM, **options).run(qkv)
    layer, first = Layer(native, 4, width, HEADS * DIM, **options), 0
    for count in (1, 20, 2, 30, 7):
        part = slice(first, first + count)
        np.testing.assert_array_equal(layer.run(qkv[part], first), whole[part])
        first += count


def test_blocks_before_a_chunk_need_not_be_there(native: Any) -> None:
    width = (HEADS + 2 * KV_HEADS) * DIM
    qkv = normal(70, width)
    layer = Layer(native, 5, width, HEADS * DIM, chunk=32)
    wanted = layer.run(qkv)
    gone = np.array([[-1, -1, 3, 4, 5]], np.int32)
    np.testing.assert_array_equal(layer.run(qkv[66:], 66, gone), wanted[66:])
    with pytest.raises(ValueError, match="pool"):
        layer.run(qkv[31:], 31, gone)  # whose first token sees the chunk before


@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize("format", ["f32", "bf16", "f16"])
def test_latent_attention_keeps_keys_alone(native: Any, format: str, window: int) -> None:
    """A page has room for them and no more; outputs are those of values kept by themselves."""
    heads, dim, v_dim, column = 16, 40, 32, 8
    options: dict[str, Any] = {
        "heads": heads, "kv_heads": 1, "head_dim": dim, "v_head_dim": v_dim, "kv_format": format,
        "window": window, "rope": ([1.0, 0.1, 0.02, 0.001], 1.0),
    }  # fmt: skip
    size = PAGE * (4 if format == "f32" else 2)
    qk = normal(50, (heads + 1) * dim)
    both = Layer(
        native, 4, (heads + 1) * dim + v_dim, heads * v_dim,
        **options | {"page_bytes": size * (dim + v_dim), "v_offset": size * dim},
    )  # fmt: skip
    wanted = both.run(np.concatenate([qk, qk[:, heads * dim + column :]], axis=1))
    latent: dict[str, Any] = options | {"page_bytes": size * dim, "v_offset": 0}
    whole = Layer(native, 4, (heads + 1) * dim, heads * v_dim, **latent, value_column=column)
    np.testing.assert_array_equal(whole.run(qk), wanted)
    costs = {name: rest for name, *rest in whole.program.costs()}
    seen = sum(min(p + 1, window or 50) for p in range(50))
    assert costs["attention"][1] == {"f32": 2 * seen * heads * (dim + v_dim)}
    assert costs["attention"][2] == 50 * dim * size / PAGE
    parts = Layer(native, 4, (heads + 1) * dim, heads * v_dim, **latent, value_column=column)
    for first, last in ((0, 1), (1, 18), (18, 19), (19, 50)):
        np.testing.assert_array_equal(parts.run(qk[first:last], first), wanted[first:last])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": 8, "chunk": 8}, "not both"),
        ({"temper": (1.0, 0.0, 0.0)}, "temper"),
        ({"q_norm": (np.ones(3, np.float32), 1e-5)}, "norm"),
        ({"value_column": -1}, "value_column"),
        ({"value_column": 0}, "fill"),
        ({"value_column": 2}, "outside"),
        ({"value_column": 0, "kv_format": "int8"}, "int8"),
        ({"value_column": 1, "v_head_dim": DIM - 2}, "even"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layer(library(), 2, (HEADS + 2 * KV_HEADS) * DIM, HEADS * DIM, **changes)
