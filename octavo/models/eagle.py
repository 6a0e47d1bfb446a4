"""EAGLE-3 heads (Li et al., 2025, arXiv 2503.01840): one decoder layer that drafts from what a
model has in mind, in the published layout.

        token j         -> embedding -> norm -+
                                              +-> attention, MLP -> norm, head -> token j + 1
        outputs of three layers at j - 1 -> fc -> norm +

Behind what the model has computed, the head's own output takes the place of fc's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from octavo.base.errors import ModelError
from octavo.models.build import Build, biased
from octavo.models.config import Config, flag, integer, integers, section, text_config
from octavo.models.kv_groups import kv_groups
from octavo.models.spec import (
    AttentionSpec,
    BranchSpec,
    LayerSpec,
    LinearSpec,
    ModelSpec,
    NormSpec,
    ParamSpec,
)

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
SHIFTS, KNOWN = "d2t", "t2d"  # a drafted token's id less its number; which tokens can be drafted
_NUM_FEATURES = 3


@dataclass(frozen=True, kw_only=True)
class EagleSpec(ModelSpec):
    """The attention of its one layer reads the token's embedding and what is in mind, side by side:
    [2 * hidden]. `vocab_size` counts the tokens that it drafts."""

    fc: LinearSpec  # [hidden], of the features side by side
    token_norm: NormSpec
    mind_norm: NormSpec
    normed_stream: bool  # whether attention is added to what is in mind normed, or as it is
    features: tuple[int, ...]  # layers of the model, whose outputs these are
    has_embedding: bool  # else the model's is used

    def params(self) -> tuple[ParamSpec, ...]:
        mine = super().params()
        return mine if self.has_embedding else tuple(p for p in mine if p != self.embedding)

    @property
    def attention(self) -> AttentionSpec:
        [[branch], _] = self.layers[0].blocks
        assert isinstance(branch.op, AttentionSpec)
        return branch.op

    @property
    def feed(self) -> BranchSpec:
        [_, [branch]] = self.layers[0].blocks
        return branch


class _Build(Build):
    def path(self, layer: int, part: str) -> str:
        return f"midlayer.{part}"


def eagle_spec(
    config: dict[str, Any], tensors: Collection[str], kv_dtype: str, target: ModelSpec
) -> EagleSpec:
    """The spec of a head for `target` whose checkpoint has `tensors`.

    Raises:
        ModelError: it is no EAGLE-3 head of a kind that is understood, or one for another model.
    """
    named = config.get("architectures") or []
    if not set(ARCHITECTURES).intersection(named):
        raise ModelError(f"config: architectures {named} are not one of {', '.join(ARCHITECTURES)}")
    known = text_config({**config, "model_type": "llama"})
    if integer(known, "num_hidden_layers") != 1:
        raise ModelError("config: num_hidden_layers must be 1")
    build = _Build(known, biased(known), groups := kv_groups(known, kv_dtype))
    hidden, vocab = build.hidden, integer(known, "vocab_size")
    embedding = ParamSpec("embed_tokens.weight", (vocab, hidden))
    has_embedding = embedding.name in tensors
    _check_sizes(hidden, vocab, target, has_embedding)
    width = _NUM_FEATURES * target.hidden_size
    layer = build.layer(0)
    return EagleSpec(
        family="eagle3",
        vocab_size=integer(known, "draft_vocab_size", default=vocab),
        hidden_size=hidden,
        max_model_len=integer(known, "max_position_embeddings"),
        embedding=embedding,
        layers=(_reading_pairs(layer, hidden),),
        norm=build.norm("norm", hidden),
        head=build.linear("lm_head", integer(known, "draft_vocab_size", default=vocab), hidden),
        kv_groups=groups,
        needless=(SHIFTS, KNOWN),
        fc=LinearSpec(ParamSpec("fc.weight", (hidden, width))),
        token_norm=build.norm("midlayer.input_layernorm", hidden),
        mind_norm=build.norm("midlayer.hidden_norm", hidden),
        normed_stream=flag(known, "norm_before_residual"),
        features=_features(known, len(target.layers)),
        has_embedding=has_embedding,
    )


def _reading_pairs(layer: LayerSpec, hidden: int) -> LayerSpec:
    """The same whose attention reads twice as wide rows, which are normed already."""
    [[mixing], feeding] = layer.blocks
    op = mixing.op
    assert isinstance(op, AttentionSpec)
    q, k, v = (
        replace(x, weight=replace(x.weight, shape=(x.out_features, 2 * hidden)))
        for x in (op.q, op.k, op.v)
    )
    return LayerSpec(((BranchSpec(None, replace(op, q=q, k=k, v=v)),), feeding))


def _features(config: Config, layers: int) -> tuple[int, ...]:
    """As the config says; else the inputs of a low, a middle and a high layer."""
    found = integers(section(config, "eagle_config") or config, "eagle_aux_hidden_state_layer_ids")
    features = tuple(found) if found else (1, layers // 2 - 1, layers - 4)
    if len(features) != _NUM_FEATURES or not all(0 <= n < layers for n in features):
        raise ModelError(f"config: {_NUM_FEATURES} of {layers} layers must be read, not {features}")
    return features


def _check_sizes(hidden: int, vocab: int, target: ModelSpec, has_embedding: bool) -> None:
    if not has_embedding and hidden != target.hidden_size:
        raise ModelError(
            f"it has no embedding and {hidden} is not the model's hidden_size, {target.hidden_size}"
        )
    if has_embedding and vocab < target.vocab_size:
        raise ModelError(f"it must know all {target.vocab_size} tokens of the model, not {vocab}")
