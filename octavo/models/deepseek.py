"""DeepSeek-V2 and V3: latent attention, many experts of which some are for all tokens."""

from __future__ import annotations

import math
from dataclasses import replace

from octavo.base.errors import ModelError
from octavo.models.build import Build, Traits
from octavo.models.config import Config, count, flag, integer, number
from octavo.models.decoder import decoder
from octavo.models.experts import normalises, own_experts, router
from octavo.models.rope import rope_parameters, rope_spec
from octavo.models.spec import (
    AttendSpec,
    LatentAttentionSpec,
    LinearSpec,
    ModelSpec,
    NormSpec,
    OpSpec,
    ParamSpec,
    Part,
    RouterSpec,
)

EXPERTS = ("n_routed_experts",)
_UNDERSTOOD = (*EXPERTS, "kv_lora_rank", "q_lora_rank")
_NORM_EPS = 1e-6  # of the latents, whatever the config says


def deepseek_v2(config: Config, kv_dtype: str) -> ModelSpec:
    """Neighbours turn together."""
    config = {**config, "rope_interleave": True, "scoring_func": "softmax"}
    traits = replace(_traits(), mlp_bias=flag(config, "mlp_bias"))
    return decoder("deepseek_v2", config, kv_dtype, traits)


def deepseek_v3(config: Config, kv_dtype: str) -> ModelSpec:
    config = {"rope_interleave": True, "norm_topk_prob": True, **config, "scoring_func": "sigmoid"}
    return decoder("deepseek_v3", config, kv_dtype, _traits())


def _traits() -> Traits:
    return Traits(mixers=_attention, feeds=feeds, understood=_UNDERSTOOD)


def _attention(build: Build, layer: int) -> tuple[LatentAttentionSpec]:
    """A head of q is what is plain, then what turns; the rows of kv_b are a head's keys, then its
    values."""
    config, path = build.config, build.path(layer, build.names.mixer)
    latent, rotary = integer(config, "kv_lora_rank"), integer(config, "qk_rope_head_dim")
    plain, value = integer(config, "qk_nope_head_dim"), integer(config, "v_head_dim")
    heads, hidden, bias = build.heads, build.hidden, flag(config, "attention_bias")
    rope = rope_spec(config, rotary)
    turning = (rotary, 0, rotary) if flag(config, "rope_interleave") else None
    asked = count(config, "q_lora_rank")
    q_name, q_in = (f"{path}.q_b_proj", asked) if asked else (f"{path}.q_proj", hidden)
    head = plain + rotary
    q_shape, down = (heads * head, q_in), (latent + rotary, hidden)
    kv = f"{path}.kv_a_proj_with_mqa"

    def up(head: int, start: int, take: int, turned: bool) -> LinearSpec:
        letter, shape = ("k", (latent, take)) if turned else ("v", (take, latent))
        part = Part(
            f"{path}.kv_b_proj.weight",
            (heads * (plain + value), latent),
            start=head * (plain + value) + start,
            take=take,
            turned="after" if turned else None,
        )
        if flag(config, "tensors_apart"):  # in GGUF files
            part = Part(f"{path}.{letter}_b_proj.weight", (heads, *shape), head)
        return LinearSpec(ParamSpec(f"{path}.{letter}_up.{head}", shape, part))

    attention = LatentAttentionSpec(
        attend=AttendSpec(
            num_heads=heads,
            num_kv_heads=1,
            head_dim=rotary + latent,
            v_head_dim=latent,
            scale=head**-0.5 * _yarn_scale(config) ** 2,
            value_column=rotary,
        ),
        q_down=build.linear(f"{path}.q_a_proj", asked, hidden, bias) if asked else None,
        q_down_norm=_norm(f"{path}.q_a_layernorm", asked) if asked else None,
        q_rotary=tuple(
            build.cut(
                f"{path}.q_rotary.{h}", q_name, q_shape, h * head + plain, rotary, halved=turning
            )
            for h in range(heads)
        ),
        q_plain=build.cut(f"{path}.q_plain", q_name, q_shape, 0, plain, every=head),
        k_rotary=build.cut(f"{path}.k_rotary", kv, down, latent, rotary, bias, halved=turning),
        latent=build.cut(f"{path}.latent", kv, down, 0, latent, bias),
        latent_norm=_norm(f"{path}.kv_a_layernorm", latent),
        k_up=tuple(up(h, 0, plain, True) for h in range(heads)),
        v_up=tuple(up(h, plain, value, False) for h in range(heads)),
        o=build.linear(f"{path}.o_proj", hidden, heads * value, bias),
        rope=rope,
    )
    return (attention,)


def _norm(name: str, size: int) -> NormSpec:
    return NormSpec(ParamSpec(f"{name}.weight", (size,)), _NORM_EPS)


def _yarn_scale(config: Config) -> float:
    """YaRN's factor of scores, where it is not part of cos and sin."""
    rope = rope_parameters(config)
    if rope["rope_type"] == "default" or not rope.get("mscale_all_dim"):
        return 1.0
    factor = number(rope, "factor")
    return 1.0 if factor <= 1 else 0.1 * number(rope, "mscale_all_dim") * math.log(factor) + 1.0


def feeds(build: Build, layer: int) -> tuple[OpSpec, ...]:
    """An MLP in the first layers; then experts, and one MLP that stands for all shared ones."""
    config, path = build.config, build.path(layer, build.names.feed)
    experts = count(config, *EXPERTS)
    frequent = integer(config, "moe_layer_freq", default=1)
    if not experts or layer < count(config, "first_k_dense_replace") or layer % frequent:
        return (build.mlp(path),)
    inner = integer(config, "moe_intermediate_size")
    routed = own_experts(
        build, f"{path}.experts", experts, inner, _router(build, f"{path}.gate", experts)
    )
    shared = count(config, "n_shared_experts")
    if not shared:
        return (routed,)
    return routed, build.mlp(f"{path}.shared_experts", inner * shared)


def _router(build: Build, name: str, experts: int) -> RouterSpec:
    config = build.config
    scale = number(config, "routed_scaling_factor", default=1.0)
    if config.get("scoring_func") == "softmax":
        plain = router(build, name, experts, normalise=False, scale=scale)
        method = config.get("topk_method", "greedy")
        if method == "greedy":
            return plain
        if method != "group_limited_greedy":
            raise ModelError(f"config: topk_method={method!r} is not supported")
        groups, top = _groups(config, experts)
        return replace(plain, groups=groups, top_groups=top, group_score="max")
    groups, top = _groups(config, experts)
    return router(
        build,
        name,
        experts,
        scoring="sigmoid",
        normalise=normalises(config, True),
        scale=scale,
        bias=ParamSpec(f"{name}.e_score_correction_bias", (experts,)),
        groups=groups,
        top_groups=top,
        group_score="top2",
    )


def _groups(config: Config, experts: int) -> tuple[int, int]:
    """Groups of experts, and how many of them a token may choose from."""
    groups = integer(config, "n_group", default=1)
    top = integer(config, "topk_group", default=groups)
    if experts % groups or top > groups:
        raise ModelError(f"config: {top} of n_group={groups} groups of {experts} experts")
    return groups, top
