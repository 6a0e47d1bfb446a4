"""How the tensors of GGUF's architectures are called in Hugging Face layout.

`{}` in a name stands for a number: the tensor holds several, one after another along its first
axis. Several names mean that their rows lie one after another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Names = str | tuple[str, ...]

_WHOLE = {
    "token_embd": "model.embed_tokens",
    "token_embd_norm": "model.embedding_norm",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_BACKBONE = {"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f"}
_OWN_WHOLE = {
    "falcon-h1": {"output_norm": "model.final_layernorm"},
    "jamba": {"output_norm": "model.final_layernorm"},
    "lfm2": {"output_norm": "model.embedding_norm"},
    "lfm2moe": {"output_norm": "model.embedding_norm"},
    "mamba": _BACKBONE,
    "mamba2": _BACKBONE,
    "nemotron_h": _BACKBONE,
    "nemotron_h_moe": _BACKBONE,
}

# Tensors that no layer reads: the config has what they say, or nothing needs them.
_READ_ELSEWHERE = ("rope_factors_long.weight", "rope_factors_short.weight")
_NEEDLESS_IN_LAYER = ("attn_rot_embd",)

_USUAL: dict[str, Names] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
}


def _feeds(path: str, stem: str) -> dict[str, Names]:
    """The names of an MLP under another path, for the tensors ffn_gate`stem` and so on."""
    return {f"ffn_{x}{stem}": f"{path}.{x}_proj" for x in ("gate", "up", "down")}


def _states(path: str, dt_bias: str = "dt_bias") -> dict[str, Names]:
    """The names of a state-space mixer under its path."""
    linears = {f"ssm_{x}": f"{path}.{y}" for x, y in _STATE_NAMES.items()}
    own = {"ssm_a": "A_log", "ssm_d": "D", "ssm_dt.bias": dt_bias}
    return {**linears, **{name: f"{path}.{end}" for name, end in own.items()}}


_STATE_NAMES = {
    "in": "in_proj",
    "conv1d": "conv1d",
    "x": "x_proj",
    "dt": "dt_proj",
    "norm": "norm",
    "out": "out_proj",
    "dt_norm": "dt_layernorm",
    "b_norm": "b_layernorm",
    "c_norm": "c_layernorm",
}

_GRANITE_MOE = {
    "ffn_gate_inp": "block_sparse_moe.router.layer",
    **_feeds("block_sparse_moe.experts.{}", "_exps"),
    **_feeds("shared_mlp", "_shexp"),
}
_LFM2: dict[str, Names] = {
    "attn_norm": "operator_norm",
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "shortconv.conv": "conv.conv",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.out_proj": "conv.out_proj",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "feed_forward.w1",
    "ffn_down": "feed_forward.w2",
    "ffn_up": "feed_forward.w3",
}
_NEMOTRON_H = {
    "attn_norm": "norm",
    **_states("mixer"),
    **{f"attn_{x}": f"mixer.{x}_proj" for x in "qkv"},
    "attn_output": "mixer.o_proj",
    **_feeds("mixer", ""),
    "ffn_gate_inp": "mixer.gate",
    "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
    **_feeds("mixer.experts.{}", "_exps"),
    **_feeds("mixer.shared_experts", "_shexp"),
}
_SHARED_EXPERT = {
    **_feeds("mlp.shared_expert", "_shexp"),
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
_GATE_UP = {"ffn_up": "mlp.gate_up_proj"}
_GEMMA = {"ffn_norm": "pre_feedforward_layernorm"}

_OWN: dict[str, dict[str, Names]] = {
    "chatglm": {**_GATE_UP},
    "deepseek2": {
        "attn_q_a": "self_attn.q_a_proj",
        "attn_q_a_norm": "self_attn.q_a_layernorm",
        "attn_q_b": "self_attn.q_b_proj",
        "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm": "self_attn.kv_a_layernorm",
        "attn_kv_b": "self_attn.kv_b_proj",
        "attn_k_b": "self_attn.k_b_proj",
        "attn_v_b": "self_attn.v_b_proj",
    },
    "falcon-h1": {
        **_states("mamba"),
        "ffn_norm": "pre_ff_layernorm.weight",
        "ffn_norm.weight": "pre_ff_layernorm.weight",
        **_feeds("feed_forward", ""),
    },
    "gemma2": {**_GEMMA},
    "gemma3": {**_GEMMA},
    "glm4": {
        **_GATE_UP,
        "post_attention_norm": "post_self_attn_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
    },
    "gpt-oss": {"attn_sinks.weight": "self_attn.sinks", "ffn_gate_inp": "mlp.router"},
    "granitehybrid": {**_GRANITE_MOE, **_feeds("shared_mlp", ""), **_states("mamba")},
    "granitemoe": _GRANITE_MOE,
    "jamba": {
        **_states("mamba", "dt_proj.bias"),
        "ffn_norm": "pre_ff_layernorm",
        **_feeds("feed_forward", ""),
        "ffn_gate_inp": "feed_forward.router",
        **_feeds("feed_forward.experts.{}", "_exps"),
    },
    "lfm2": _LFM2,
    "lfm2moe": {
        **_LFM2,
        "ffn_gate_inp": "feed_forward.gate",
        "ffn_gate_exps": "feed_forward.experts.{}.w1",
        "ffn_down_exps": "feed_forward.experts.{}.w2",
        "ffn_up_exps": "feed_forward.experts.{}.w3",
        "exp_probs_b.bias": "feed_forward.expert_bias",
    },
    "llama": {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    },
    "llama4": {
        **_feeds("feed_forward", ""),
        "ffn_gate_inp": "feed_forward.router",
        **_feeds("feed_forward.experts.{}", "_exps"),
        **_feeds("feed_forward.shared_expert", "_shexp"),
    },
    "mamba": {"attn_norm": "norm", **_states("mixer", "dt_proj.bias")},
    "mamba2": {"attn_norm": "norm", **_states("mixer")},
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": _NEMOTRON_H,
    "phi3": {**_GATE_UP, "attn_qkv": "self_attn.qkv_proj"},
    "qwen2moe": _SHARED_EXPERT,
    "qwen3next": {
        **_SHARED_EXPERT,
        **_states("linear_attn"),
        "ssm_in": "linear_attn.in_proj_qkvz",
        "ssm_ba": "linear_attn.in_proj_ba",
        "attn_qkv": "linear_attn.in_proj_qkv",
        "attn_gate": "linear_attn.in_proj_z",
    },
    "stablelm": {
        "attn_q_norm": "self_attn.q_layernorm.norms.{}",
        "attn_k_norm": "self_attn.k_layernorm.norms.{}",
    },
}

# Whose rows of q and k are put so that neighbours turn together.
PERMUTED = ("granite", "granitehybrid", "granitemoe", "llama", "mistral3", "olmo", "smollm3")


def translate(architecture: str, name: str, layers: int) -> tuple[str, ...]:
    """The names of what the tensor `name` holds; none where no layer needs it; unknown names stay.

    `blk.N.attn_q.weight` -> `model.layers.N.self_attn.q_proj.weight`
    """
    whole = {**_WHOLE, **_OWN_WHOLE.get(architecture, {})}
    stem, _, kind = name.rpartition(".")
    if stem in whole:
        return (f"{whole[stem]}.{kind}",)
    match = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
    if match is None:
        return () if name in _READ_ELSEWHERE else (name,)
    if int(match[1]) >= layers or match[2].startswith(_NEEDLESS_IN_LAYER):
        return ()
    found = _in_layer({**_USUAL, **_OWN.get(architecture, {})}, match[2])
    path = "backbone.layers" if _OWN_WHOLE.get(architecture) is _BACKBONE else "model.layers"
    return tuple(f"{path}.{match[1]}.{part}" for part in found) or (name,)


def _in_layer(names: Mapping[str, Names], name: str) -> tuple[str, ...]:
    """A few names are whole: what they stand for has no kind, such as `weight`, or another."""
    whole = names.get(name)
    if isinstance(whole, str):
        return (whole,)
    stem, _, kind = name.rpartition(".")
    found = names.get(stem, ())
    return tuple(f"{part}.{kind}" for part in ([found] if isinstance(found, str) else found))
