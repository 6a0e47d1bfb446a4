"""Attention in a program: q, k and v side by side in a buffer, what is mixed, and the way back."""

from __future__ import annotations

from typing import Any

from octavo.models.spec import AttendSpec, AttentionSpec, LatentAttentionSpec, NormSpec
from octavo.native.emitter import Emitter, Target


def attention(made: Emitter, layer: int, spec: AttentionSpec, source: int, to: Target) -> None:
    shape, program = spec.attend, made.program
    qkv = made.linears("qkv", "qkv", source, [spec.q, spec.k, spec.v])
    mixed = made.buffer("mixed", shape.num_heads * shape.v_head_dim)
    options: dict[str, Any] = {}
    column = 0
    for name, norm, heads in (
        ("q_norm", spec.q_norm, shape.num_heads),
        ("k_norm", spec.k_norm, shape.num_kv_heads),
    ):
        columns = heads * shape.head_dim
        if norm is not None and _is_of_each_head(norm, heads, shape.head_dim):
            options[name] = (made.norm_weight(norm), norm.eps)
        elif norm is not None:
            made.norm(qkv, qkv, norm, column=column, columns=columns)
        column += columns
    temper = spec.temper
    program.attention(
        mixed,
        qkv,
        **_place(made, layer),
        **_how(shape),
        **options,
        sinks=made.vector(spec.sinks),
        rope=made.rope(spec.rope),
        norm_after_rope=spec.norm_after_rope,
        temper=(temper.scale, temper.length, temper.offset) if temper else None,
    )
    if spec.gate is not None:
        gate = made.linears("gate", "gate", source, [spec.gate])
        program.multiply("gate", mixed, gate, "sigmoid")
    made.linear("o", mixed, [spec.o], to)


def latent_attention(
    made: Emitter, layer: int, spec: LatentAttentionSpec, source: int, to: Target
) -> None:
    """Heads of q lie as the latents do: what turns, then what meets the latent."""
    shape, program = spec.attend, made.program
    heads, width, rotary = shape.num_heads, shape.head_dim, shape.value_column
    assert rotary is not None
    asked = source
    if spec.q_down is not None:
        asked = made.linears("q down", "q down", source, [spec.q_down])
        assert spec.q_down_norm is not None
        made.norm(asked, asked, spec.q_down_norm)
    qk = made.buffer("qk", (heads + 1) * width)
    turning = [made.placed(s, 0, h * width) for h, s in enumerate(spec.q_rotary)]
    program.linear("q", qk, asked, turning, False)
    kept = [
        made.placed(spec.k_rotary, 0, heads * width),
        made.placed(spec.latent, 0, heads * width + rotary),
    ]
    program.linear("latent", qk, source, kept, False)
    made.norm(qk, qk, spec.latent_norm, column=heads * width + rotary, columns=shape.v_head_dim)
    plain = made.linears("q", "q plain", asked, [spec.q_plain])
    size = spec.q_plain.out_features // heads
    up = [made.placed(s, h * size, h * width + rotary) for h, s in enumerate(spec.k_up)]
    program.linear("k up", qk, plain, up, False)
    mixed = made.buffer("mixed", heads * shape.v_head_dim)
    program.attention(
        mixed, qk, **_place(made, layer), **_how(shape), rope=made.rope(spec.rope),
        value_column=rotary,
    )  # fmt: skip
    values = made.buffer("values", sum(linear.out_features for linear in spec.v_up))
    size = shape.v_head_dim
    out = spec.v_up[0].out_features
    program.linear(
        "v up", values, mixed, [made.placed(s, h * size, h * out) for h, s in enumerate(spec.v_up)],
        False,
    )  # fmt: skip
    made.linear("o", values, [spec.o], to)


def _is_of_each_head(norm: NormSpec, heads: int, head_dim: int) -> bool:
    """Whether it is the norm that attention's own kernel computes."""
    if norm.kind != "rms" or norm.bias is not None or norm.groups != heads:
        return False
    return norm.weight is None or norm.weight.shape == (head_dim,)


def _place(made: Emitter, layer: int) -> dict[str, Any]:
    place = made.memory.attention[layer]
    return {
        "memory": place.memory,
        "page_bytes": place.page_bytes,
        "k_offset": place.offsets[0],
        "v_offset": place.offsets[-1],
        "block_size": made.block_size,
        "kv_format": made.kv_format,
        "group": place.group,
    }


def _how(spec: AttendSpec) -> dict[str, Any]:
    return {
        "heads": spec.num_heads,
        "kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "v_head_dim": spec.v_head_dim,
        "scale": spec.scale,
        "window": spec.window or 0,
        "chunk": spec.chunk or 0,
        "soft_cap": spec.soft_cap or 0.0,
    }
