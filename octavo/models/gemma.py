"""Gemma 1, 2 and 3: norms count from one, embeddings are scaled, layers see windows."""

from __future__ import annotations

from typing import Any

from octavo.models.build import Build, Names, Traits, biased, norm_from_one
from octavo.models.config import Config, integer, number, value
from octavo.models.decoder import decoder
from octavo.models.rope import rope_spec
from octavo.models.spec import ModelSpec, RopeSpec

_AROUND = Names(
    after_mixer="post_attention_layernorm",
    before_feed="pre_feedforward_layernorm",
    after_feed="post_feedforward_layernorm",
)
_CAPS = ("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar")
_LOCAL_THETA = 10000.0


def gemma(config: Config, kv_dtype: str) -> ModelSpec:
    """Its first files say `hidden_act` "gelu" where the makers' code computes the tanh formula."""
    if value(config, "hidden_activation", "hidden_act") in (None, "gelu"):
        config = {**config, "hidden_activation": "gelu_pytorch_tanh"}
    return decoder("gemma", config, kv_dtype, _traits(config, Names()))


def gemma2(config: Config, kv_dtype: str) -> ModelSpec:
    """Scores and logits are capped."""
    return decoder("gemma2", config, kv_dtype, _traits(config, _AROUND))


def gemma3(config: Config, kv_dtype: str) -> ModelSpec:
    """Norms over heads of q and k; windows turn by a rotary base of their own. The length that
    files say is that after scaling."""
    longest = integer(config, "max_position_embeddings")
    traits = _traits(config, _AROUND, qk_norm="head", rope=_rope, max_model_len=longest)
    return decoder("gemma3", config, kv_dtype, traits)


def _traits(config: Config, names: Names, **more: Any) -> Traits:
    scalar = value(config, "query_pre_attn_scalar")
    return biased(
        config,
        names=names,
        norm=norm_from_one(config),
        embedding_scale=number(config, "hidden_size") ** 0.5,
        attention_scale=None if scalar is None else number(config, "query_pre_attn_scalar") ** -0.5,
        soft_cap=_cap(config, "attn_logit_softcapping"),
        logit_cap=_cap(config, "final_logit_softcapping"),
        understood=_CAPS,
        **more,
    )


def _cap(config: Config, name: str) -> float | None:
    return None if config.get(name) in (None, False) else number(config, name)


def _rope(build: Build, layer: int) -> RopeSpec:
    """Older files have two bases, of which only that of full attention may be scaled."""
    config, local = build.config, build.group(layer).kind == "window"
    if local and value(config, "rope_parameters") is None:
        theta = number(config, "rope_local_base_freq", default=_LOCAL_THETA)
        config = {**config, "rope_theta": theta, "rope_scaling": None}
    return rope_spec(config, build.head_dim, "sliding_attention" if local else "full_attention")
