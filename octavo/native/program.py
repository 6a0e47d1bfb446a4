"""The native reading of a ModelSpec: a flat program of ops over packed weights.

        embed | norm  qkv  attention  o+ | norm  gate*up  down+ | ... | choose  norm  head

Each op here has its torch twin in `layers.decoder`; `o+` and `down+` add to the residual stream.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.models.spec import AttentionSpec, LayerSpec, LinearSpec, MlpSpec, ModelSpec, NormSpec
from octavo.native.interface import Program
from octavo.native.kv import KV_FORMATS, LayerPages
from octavo.native.weights import Weights


@dataclass(frozen=True)
class Emitted:
    """Buffers of a program that its runner reads after a step."""

    logits: int  # [S, vocab]
    hidden: dict[int, int]  # layer -> [S, hidden] after it, for the layers that were named


class Emitter:
    """Writes a decoder into `program`, op by op. A buffer is a number; layers share them."""

    def __init__(
        self,
        program: Program,
        spec: ModelSpec,
        weights: Weights,
        pages: Sequence[LayerPages],
        kv_dtype: str,
        block_size: int,
    ) -> None:
        self._program = program
        self._spec = spec
        self._weights = weights
        self._pages = pages
        self._kv_format = KV_FORMATS[kv_dtype]
        self._block_size = block_size
        self._buffers: dict[tuple[str, int], int] = {}
        self._ropes: dict[object, int] = {}

    def emit(self, hidden_of: Collection[int] = ()) -> Emitted:
        """The whole model; `hidden_of` names layers whose output at chosen tokens is kept."""
        spec, program = self._spec, self._program
        x = self._buffer("stream", spec.hidden_size)
        last = program.buffer(spec.hidden_size, True)
        normed = program.buffer(spec.hidden_size, True)
        logits = program.buffer(spec.vocab_size, True)
        hidden = {n: program.buffer(spec.hidden_size, True) for n in hidden_of}
        program.embed(x, self._weights.matrix(spec.embedding))
        for n, layer in enumerate(spec.layers):
            self._layer(n, layer, x)
            if n in hidden:
                program.choose("choose", hidden[n], x)
        program.choose("choose", last, x)
        self._norm(normed, last, spec.norm)
        self._linear("head", logits, normed, [spec.head])
        return Emitted(logits, hidden)

    def _layer(self, index: int, layer: LayerSpec, x: int) -> None:
        normed = self._buffer("normed", self._spec.hidden_size)
        self._norm(normed, x, layer.input_norm)
        self._attention(index, layer.attention, normed, x)
        self._norm(normed, x, layer.post_norm)
        self._mlp(layer.mlp, normed, x)

    def _attention(self, index: int, spec: AttentionSpec, normed: int, x: int) -> None:
        linears = [spec.q, spec.k, spec.v]
        qkv = self._buffer("qkv", sum(linear.weight.shape[0] for linear in linears))
        mixed = self._buffer("mixed", spec.num_heads * spec.v_head_dim)
        self._linear("qkv", qkv, normed, linears)
        place = self._pages[index]
        self._program.attention(
            mixed,
            qkv,
            memory=place.memory,
            page_bytes=place.page_bytes,
            k_offset=place.k_offset,
            v_offset=place.v_offset,
            block_size=self._block_size,
            kv_format=self._kv_format,
            group=place.group,
            heads=spec.num_heads,
            kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            v_head_dim=spec.v_head_dim,
            scale=spec.scale,
            window=spec.window or 0,
            rope=self._rope(spec),
            q_norm=self._head_norm(spec.q_norm),
            k_norm=self._head_norm(spec.k_norm),
        )
        self._linear("o", x, mixed, [spec.o], add=True)

    def _mlp(self, spec: MlpSpec, normed: int, x: int) -> None:
        weights, inner = self._weights, self._buffer("inner", spec.up.weight.shape[0])
        self._program.gated(
            "gate_up",
            inner,
            normed,
            (weights.matrix(spec.gate.weight), weights.bias(spec.gate), 1.0),
            (weights.matrix(spec.up.weight), weights.bias(spec.up), 1.0),
            spec.activation,
        )
        self._linear("down", x, inner, [spec.down], add=True)

    def _norm(self, to: int, source: int, spec: NormSpec) -> None:
        self._program.norm("norm", to, source, self._weights.vector(spec.weight), spec.eps)

    def _linear(
        self, name: str, to: int, source: int, specs: Sequence[LinearSpec], add: bool = False
    ) -> None:
        """Outputs of several linears over the same rows lie side by side."""
        parts = [(self._weights.matrix(s.weight), self._weights.bias(s), 1.0) for s in specs]
        self._program.linear(name, to, source, parts, add)

    def _head_norm(self, spec: NormSpec | None) -> tuple[np.ndarray, float] | None:
        return (self._weights.vector(spec.weight), spec.eps) if spec else None

    def _rope(self, spec: AttentionSpec) -> int:
        """The table of this layer's rotary positions, made once a step; -1: none."""
        if spec.rope is None:
            return -1
        if spec.rope not in self._ropes:
            rope = spec.rope
            self._ropes[rope] = self._program.rope(list(rope.inv_freq), rope.attention_factor, 0)
        return self._ropes[spec.rope]

    def _buffer(self, role: str, width: int) -> int:
        """Buffers of one role and width are one: layers run one after another."""
        if (role, width) not in self._buffers:
            self._buffers[role, width] = self._program.buffer(width, False)
        return self._buffers[role, width]
