"""The native reading of a ModelSpec: a flat program of ops over packed weights.

        embed | norm  qkv  attention  o+ | norm  gate*up  down+ | ... | choose  norm  head

Each op here has its torch twin in `layers`; `o+` and `down+` add to the residual stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.models.spec import (
    AttentionSpec,
    BranchSpec,
    DeltaSpec,
    ExpertsSpec,
    LatentAttentionSpec,
    LayerSpec,
    Mamba1Spec,
    Mamba2Spec,
    MlpSpec,
    ModelSpec,
    ShortConvSpec,
)
from octavo.native.attention_ops import attention, latent_attention
from octavo.native.emitter import Emitter, Target
from octavo.native.feed_ops import experts, mlp
from octavo.native.state_ops import delta, mamba1, mamba2, short_conv

# (emitter, index of the layer, spec, buffer that is read, where the result goes)
OPS: dict[type, Callable[[Emitter, int, Any, int, Target], None]] = {
    AttentionSpec: attention,
    LatentAttentionSpec: latent_attention,
    MlpSpec: mlp,
    ExpertsSpec: experts,
    ShortConvSpec: short_conv,
    Mamba1Spec: mamba1,
    Mamba2Spec: mamba2,
    DeltaSpec: delta,
}


@dataclass(frozen=True)
class Emitted:
    """Buffers of a program that its runner reads after a step."""

    logits: int  # [S, vocab]
    hidden: dict[int, int]  # layer -> [S, hidden] after it, for the layers that were named
    features: int | None  # [T, hidden of each layer that was named, side by side]


def emit(
    made: Emitter, spec: ModelSpec, hidden_of: Collection[int] = (), features: Sequence[int] = ()
) -> Emitted:
    """The whole model; `hidden_of` names layers whose output at chosen tokens is kept, `features`
    those whose output at all tokens is."""
    program = made.program
    x = made.buffer("stream", spec.hidden_size)
    last, normed = (program.buffer(spec.hidden_size, True) for _ in range(2))
    logits = program.buffer(spec.vocab_size, True)
    hidden = {n: program.buffer(spec.hidden_size, True) for n in hidden_of}
    program.embed(x, made.weights.matrix(spec.embedding), spec.embedding_scale)
    told = program.buffer(len(features) * spec.hidden_size, False) if features else None
    for n, layer in enumerate(spec.layers):
        made.enter(n)
        emit_layer(made, n, layer, x)
        if n in hidden:
            program.choose("choose", hidden[n], x)
        for i in (i for i, wanted in enumerate(features) if wanted == n):
            assert told is not None
            program.copy("features", told, x, column=i * spec.hidden_size)
    made.enter(None)
    program.choose("choose", last, x)
    made.norm(normed, last, spec.norm)
    made.linear("head", normed, [spec.head], Target(logits, False))
    if spec.logit_cap is not None:
        program.soft_cap("cap", logits, spec.logit_cap)
    return Emitted(logits, hidden, told)


def emit_layer(made: Emitter, index: int, layer: LayerSpec, x: int) -> None:
    """Adds to the residual stream in buffer `x`."""
    for block in layer.blocks:
        inputs = _inputs(made, block, x)
        for branch, source in zip(block, inputs, strict=True):
            op = OPS[type(branch.op)]
            if branch.post_norm is None:
                op(made, index, branch.op, source, Target(x, True))
                continue
            out = made.buffer("branch", made.hidden_size)
            op(made, index, branch.op, source, Target(out, False))
            made.norm(x, out, branch.post_norm, add=True)


def _inputs(made: Emitter, block: tuple[BranchSpec, ...], x: int) -> list[int]:
    """What each branch reads: x normed, once for each norm, before anything is added to it."""
    buffers: dict[Any, int] = {None: x}
    for branch in block:
        if branch.norm not in buffers:
            normed = made.buffer(f"normed {len(buffers)}", made.hidden_size)
            assert branch.norm is not None
            made.norm(normed, x, branch.norm)
            buffers[branch.norm] = normed
    return [buffers[branch.norm] for branch in block]
