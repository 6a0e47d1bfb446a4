"""A whole step of a tiny layer, from ids to a token, without torch: small enough for valgrind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from octavo.base.sampling_params import SamplingParams
from octavo.native.library import library, usable_variants
from octavo.native.sampling import sample
from octavo.sampling.rows import SamplingRow

HIDDEN, VOCAB = 64, 70
HEADS, KV_HEADS, HEAD_DIM = 2, 1, 16
QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM
PAGE = 2 * 16 * KV_HEADS * HEAD_DIM * 4  # bytes: K and V of 16 tokens, in float32
LENGTHS = (20, 3, 1)


class Weights:
    """Random ones, each time others."""

    def __init__(self, native: Any, format: str) -> None:
        self._native = native
        self._format = format
        self._rng = np.random.default_rng(0)

    def linear(self, n: int, k: int) -> Any:
        values = self._rng.standard_normal((n, k), np.float32) / 8
        packed = self._native.Packed(self._format, n, k)
        if self._format == "int8":
            codes = np.rint(values * 127).clip(-127, 127).astype(np.int8)
            self._native.pack_int8(packed, codes, np.full(n, 1 / 127, np.float32), 0)
        elif self._format.startswith("q"):
            kind = GGMLQuantizationType[self._format.upper()]
            self._native.pack_blocks(packed, quantize(values, kind), 0)
        else:
            self._native.pack_float(packed, values, 0)
        return packed, None, 1.0


class Layer:
    """Embedding, attention, MLP and head; rows begin at position 0."""

    def __init__(self, native: Any, format: str) -> None:
        weights, ones = Weights(native, format), np.ones(HIDDEN, np.float32)
        self.pool = native.Pool(2)
        self.program = program = native.Program(self.pool)
        x, normed, qkv, mixed, inner = (
            program.buffer(width, False) for width in (HIDDEN, HIDDEN, QKV, HEADS * HEAD_DIM, 96)
        )
        last, self.logits = program.buffer(HIDDEN, True), program.buffer(VOCAB, True)
        table = Weights(native, "f32").linear(VOCAB, HIDDEN)[0]
        program.embed(x, table)
        rope = program.rope([1.0, 0.1], 1.0, 0)
        program.norm("norm", normed, x, ones, 1e-5)
        program.linear("qkv", qkv, normed, [weights.linear(QKV, HIDDEN)], False)
        program.attention(
            mixed, qkv, memory=native.Memory(8 * PAGE), page_bytes=PAGE, k_offset=0,
            v_offset=PAGE // 2, block_size=16, kv_format="f32", group=0, heads=HEADS,
            kv_heads=KV_HEADS, head_dim=HEAD_DIM, v_head_dim=HEAD_DIM, scale=0.25, rope=rope,
        )  # fmt: skip
        program.linear("o", x, mixed, [weights.linear(HIDDEN, HEADS * HEAD_DIM)], True)
        program.norm("norm", normed, x, ones, 1e-5)
        gate, up = weights.linear(96, HIDDEN), weights.linear(96, HIDDEN)
        program.gated("gate_up", inner, normed, gate, up, "silu")
        program.linear("down", x, inner, [weights.linear(HIDDEN, 96)], True)
        program.choose("choose", last, x)
        program.linear("head", self.logits, last, [weights.linear(VOCAB, HIDDEN)], False)

    def run(self, rows: list[int]) -> np.ndarray:
        """Logits of the last token of rows, each of the length that LENGTHS says."""
        lengths = [LENGTHS[row] for row in rows]
        ends = np.cumsum(lengths)
        positions = np.concatenate([np.arange(n) for n in lengths])
        self.program.take(
            token_ids=(positions * 7 % VOCAB).astype(np.int32),
            positions=positions[None],
            row_starts=np.array([0, *ends], np.int32),
            context_lens=np.array(lengths, np.int32),
            tables=[np.arange(2 * len(rows), dtype=np.int32).reshape(-1, 2)],
            chosen=ends - 1,
        )
        self.program.start(0)
        self.program.wait()
        return np.array(self.program.rows(self.logits))


def sampling_row(logprobs: int) -> SamplingRow:
    params = SamplingParams(top_k=9, top_p=0.9, repetition_penalty=1.2, seed=1, logprobs=logprobs)
    return SamplingRow(params, 0, 2, 1, np.array([3, 5], np.int32), ())


@pytest.mark.parametrize("variant", usable_variants())
@pytest.mark.parametrize("format", ["f32", "bf16", "f16", "q4_1", "q8_0", "int8"])
def test_a_row_gets_alone_what_it_gets_with_others(format: str, variant: str) -> None:
    native = library(variant)
    layer = Layer(native, format)
    together = layer.run([0, 1, 2])
    rows = [sampling_row(n) for n in range(len(LENGTHS))]
    drawn = sample(layer.pool, together, rows)
    assert np.isfinite(together).all() and len({x.tobytes() for x in together}) == len(LENGTHS)
    for i, row in enumerate(rows):
        alone = layer.run([i])
        assert alone.tobytes() == together[i].tobytes()
        assert sample(layer.pool, alone, [row]) == [drawn[i]]
