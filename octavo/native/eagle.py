"""An EAGLE-3 head as a program: the twin of `octavo.layers.eagle`.

        fc | norm  embed  norm  qkv  attention  o+ | norm  gate*up  down+ | choose  norm  head

The first segment is fc alone, so that what it gives may be given instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.models.eagle import EagleSpec
from octavo.models.spec import MlpSpec
from octavo.native.attention_ops import attention
from octavo.native.emitter import Emitter, Target
from octavo.native.feed_ops import mlp
from octavo.native.interface import Packed


@dataclass(frozen=True)
class EmittedHead:
    """Buffers that are filled before a segment starts, or read after the last one."""

    features: int  # [T, features side by side], before the first segment
    mind: int  # [T, hidden], before the second one where the first is left out
    logits: int  # [S, drafted tokens]
    after: int  # [S, hidden]: what is in mind then


def emit_head(made: Emitter, spec: EagleSpec, embedding: Packed) -> EmittedHead:
    program, hidden = made.program, spec.hidden_size
    features = program.buffer(spec.fc.weight.shape[1], False)
    x = made.buffer("stream", hidden)
    made.linear("fc", features, [spec.fc], Target(x, False))
    program.cut()
    _layer(made, spec, embedding, x)
    after, normed = (program.buffer(hidden, True) for _ in range(2))
    logits = program.buffer(spec.vocab_size, True)
    program.choose("choose", after, x)
    made.norm(normed, after, spec.norm)
    made.linear("head", normed, [spec.head], Target(logits, False))
    return EmittedHead(features, x, logits, after)


def _layer(made: Emitter, spec: EagleSpec, embedding: Packed, x: int) -> None:
    program, hidden = made.program, spec.hidden_size
    pair, tokens = made.buffer("pair", 2 * hidden), made.buffer("tokens", hidden)
    normed = made.buffer("normed", hidden)
    program.embed(tokens, embedding)
    made.norm(pair, tokens, spec.token_norm, columns=hidden)
    made.norm(normed, x, spec.mind_norm)
    program.copy("pair", pair, normed, column=hidden)
    if spec.normed_stream:
        program.copy("pair", x, normed)
    attention(made, 0, spec.attention, pair, Target(x, True))
    assert spec.feed.norm is not None and isinstance(spec.feed.op, MlpSpec)
    made.norm(normed, x, spec.feed.norm)
    mlp(made, 0, spec.feed.op, normed, Target(x, True))
