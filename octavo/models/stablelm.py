"""StableLM: LayerNorm with biases, a quarter of each head turns, optional norms over heads."""

from __future__ import annotations

from dataclasses import replace

from octavo.models.build import Build, Traits
from octavo.models.config import Config, flag
from octavo.models.decoder import decoder
from octavo.models.spec import AttentionSpec, ModelSpec, NormSpec, ParamSpec


def stablelm(config: Config, kv_dtype: str) -> ModelSpec:
    traits = Traits(
        qkv_bias=flag(config, "use_qkv_bias"),
        norm=NormSpec(None, 0.0, kind="layer"),
        eps="layer_norm_eps",
        norm_bias=True,
        parallel=flag(config, "use_parallel_residual"),
        mixers=_attention,
        understood=("partial_rotary_factor", "qk_layernorm", "use_parallel_residual"),
    )
    return decoder("stablelm", config, kv_dtype, traits)


def _attention(build: Build, layer: int) -> tuple[AttentionSpec]:
    attention = build.attention(layer)
    if not flag(build.config, "qk_layernorm"):
        return (attention,)
    path = build.path(layer, build.names.mixer)
    q_norm = _norm_of_each_head(build, f"{path}.q_layernorm", build.heads)
    k_norm = _norm_of_each_head(build, f"{path}.k_layernorm", build.kv_heads)
    return (replace(attention, q_norm=q_norm, k_norm=k_norm),)


def _norm_of_each_head(build: Build, path: str, heads: int) -> NormSpec:
    """Each head has a weight of its own, and its tensor."""
    tensors = tuple(f"{path}.norms.{head}.weight" for head in range(heads))
    weight = ParamSpec(f"{path}.weight", (heads * build.head_dim,), joined=tensors)
    return NormSpec(weight, build.eps, kind="layer", groups=heads)
