"""GGUF files of tiny models, written as llama.cpp's converter writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType
from safetensors.torch import load_file

ARCHITECTURES = {
    "cohere": "command-r",
    "falcon_h1": "falcon-h1",
    "falcon_mamba": "mamba",
    "granitemoehybrid": "granitehybrid",
    "lfm2_moe": "lfm2moe",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "gemma3_text": "gemma3",
    "glm": "chatglm",
    "glm4_moe": "glm4moe",
    "gpt_oss": "gpt-oss",
    "granitemoeshared": "granitemoe",
    "llama4_text": "llama4",
    "ministral3": "mistral3",
    "mistral": "llama",
    "mixtral": "llama",
    "olmo3": "olmo2",
    "qwen2_moe": "qwen2moe",
    "nemotron_h": "nemotron_h_moe",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
}
_PERMUTED = ("granite", "granitehybrid", "granitemoe", "llama", "mistral3", "olmo", "smollm3")
_MAMBA2 = ("falcon-h1", "granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe")
_NORMS_PLUS_ONE = ("gemma", "gemma2", "gemma3", "qwen3next")

_ENUM = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}

Named = Iterator[tuple[str, np.ndarray]]


def tiny_gguf(
    path: Path, model: Any, kind: str = "F32", older: bool = False, **metadata: Any
) -> dict[str, np.ndarray]:
    """Write `model` (of Transformers) with its matrices as `kind`; as an `older` converter did,
    where there is one.

    `metadata` adds or replaces keys of the architecture, dots written as two underscores; those
    that are None are left out. Gives the values that the file stands for, dequantised, by the
    names of Hugging Face's files.
    """
    config = model.config
    arch = architecture(config)
    writer = gguf.GGUFWriter(path, arch)
    metadata = _metadata(arch, config) | metadata
    for key, value in metadata.items():
        if value is not None:
            _add(writer, f"{arch}.{key.replace('__', '.')}", value)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_bos_token_id(config.bos_token_id)
    values = {}
    written: dict[str, tuple[np.ndarray, GGMLQuantizationType]] = {}
    for name, array in _saved(model).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        type = GGMLQuantizationType["F32" if array.ndim == 1 else kind]
        made = dict(_converted(arch, config, name, array, metadata, older))
        packed = {new: gguf.quants.quantize(part, type) for new, part in made.items()}
        if name in packed:
            array = gguf.quants.dequantize(packed[name], type).reshape(array.shape)
        values[name] = array
        written |= {new: (_ordered(arch, config, new, rows), type) for new, rows in packed.items()}
    names = gguf.get_tensor_name_map(_ENUM[arch], config.num_hidden_layers)
    for name, (packed, type) in _stacked(written).items():
        writer.add_tensor(_gguf_name(names, name), packed, raw_dtype=type)
    _write_rope_factors(writer, model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def architecture(config: Any) -> str:
    if config.model_type == "nemotron_h" and "moe" not in config.layer_types:
        return "nemotron_h"
    return ARCHITECTURES.get(config.model_type, config.model_type)


def kv_b_in_one(config: Any) -> dict[str, Any]:
    """Metadata of DeepSeek's older files, which have keys and values of all heads in one tensor."""
    return {
        "attention__head_count_kv": config.num_attention_heads,
        "attention__key_length": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention__key_length_mla": None,
        "attention__value_length": config.v_head_dim,
        "attention__value_length_mla": None,
    }


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """The converter's order of q and k rows for `llama`."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


# ---- metadata ----


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        list: writer.add_array,
    }
    adders.get(type(value), writer.add_string)(key, value)


def _metadata(arch: str, config: Any) -> dict[str, Any]:
    if arch in ("mamba", "mamba2"):
        return _mamba(config)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    common = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention__head_count": config.num_attention_heads,
        "attention__head_count_kv": config.num_key_value_heads,
        "attention__key_length": head_dim,
        "attention__value_length": head_dim,
        "vocab_size": config.vocab_size,
    }
    told = {key: getattr(config, name, None) for key, name in _TOLD.items()}
    own = _OWN.get(arch)
    return common | told | _rope(arch, config, head_dim) | (own(config) if own else {})


_TOLD = {
    "attention__layer_norm_rms_epsilon": "rms_norm_eps",
    "attention__layer_norm_epsilon": "layer_norm_eps",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "logit_scale": "logit_scale",
}


def _rope(arch: str, config: Any, head_dim: int) -> dict[str, Any]:
    rope = getattr(config, "rope_parameters", None)
    if not rope:
        return {}
    local = rope.get("sliding_attention")
    rope = rope.get("full_attention", rope)
    told: dict[str, Any] = {"rope__freq_base": rope["rope_theta"]}
    if arch == "gemma3":
        told["rope__freq_base_swa"] = local["rope_theta"]
    if rope["rope_type"] in ("linear", "yarn"):
        told["rope__scaling__type"] = rope["rope_type"]
        told["rope__scaling__factor"] = rope["factor"]
    if rope["rope_type"] in ("yarn", "longrope"):
        original = rope["original_max_position_embeddings"]
        told["rope__scaling__original_context_length"] = original
    partial = rope.get("partial_rotary_factor") or 1.0
    return told | {"rope__dimension_count": int(head_dim * partial)}


def _windowed(config: Any) -> dict[str, Any]:
    return {"attention__sliding_window": config.sliding_window or 0}


def _olmo2(config: Any) -> dict[str, Any]:
    if config.model_type == "olmo2":
        return {}
    pattern = [kind == "sliding_attention" for kind in config.layer_types]
    return _windowed(config) | {"attention__sliding_window_pattern": pattern}


def _phi3(config: Any) -> dict[str, Any]:
    return _windowed(config) | {"rope__scaling__attn_factor": 1.0}


def _qwen2moe(config: Any) -> dict[str, Any]:
    return {
        "expert_count": config.num_experts,
        "expert_shared_feed_forward_length": config.shared_expert_intermediate_size,
    }


def _granite(config: Any) -> dict[str, Any]:
    return {
        "attention__scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "logit_scale": config.logits_scaling,
        "residual_scale": config.residual_multiplier,
        "expert_shared_feed_forward_length": getattr(config, "shared_intermediate_size", None),
    }


def _routed(config: Any) -> dict[str, Any]:
    return {
        "expert_count": config.n_routed_experts,
        "expert_shared_count": config.n_shared_experts,
        "expert_gating_func": 1 if config.model_type == "deepseek_v2" else 2,
        "expert_weights_scale": float(config.routed_scaling_factor),
        "expert_weights_norm": config.model_type != "deepseek_v2",
        "leading_dense_block_count": config.first_k_dense_replace,
    }


def _deepseek2(config: Any) -> dict[str, Any]:
    """A new file, whose attention is said as it is kept."""
    latent, rotary = config.kv_lora_rank, config.qk_rope_head_dim
    multiplier = config.rope_parameters.get("mscale_all_dim")
    return _routed(config) | {
        "attention__head_count_kv": 1,
        "attention__kv_lora_rank": latent,
        "attention__q_lora_rank": config.q_lora_rank,
        "attention__key_length": latent + rotary,
        "attention__value_length": latent,
        "attention__key_length_mla": config.qk_nope_head_dim + rotary,
        "attention__value_length_mla": config.v_head_dim,
        "rope__dimension_count": rotary,
        "rope__scaling__yarn_log_multiplier": multiplier and 0.1 * multiplier,
    }


def _llama4(config: Any) -> dict[str, Any]:
    return {
        "feed_forward_length": config.intermediate_size_mlp,
        "expert_feed_forward_length": config.intermediate_size,
        "interleave_moe_layer_step": config.interleave_moe_layer_step,
    }


def _mistral3(config: Any) -> dict[str, Any]:
    rope = config.rope_parameters
    return {
        "attention__temperature_scale": rope["llama_4_scaling_beta"],
        "rope__scaling__yarn_log_multiplier": rope.get("mscale_all_dim"),
    }


def _mamba(config: Any) -> dict[str, Any]:
    heads = getattr(config, "num_heads", None)
    inner = heads * config.head_dim if heads else config.intermediate_size
    return {
        "block_count": config.num_hidden_layers,
        "context_length": 512,
        "embedding_length": config.hidden_size,
        "feed_forward_length": 0,
        "attention__head_count": 0,
        "attention__layer_norm_rms_epsilon": config.layer_norm_epsilon,
        "ssm__conv_kernel": config.conv_kernel,
        "ssm__inner_size": inner,
        "ssm__state_size": config.state_size,
        "ssm__time_step_rank": heads or config.time_step_rank,
        "ssm__group_count": getattr(config, "n_groups", None),
        "ssm__dt_b_c_rms": None if heads else config.model_type == "falcon_mamba",
    }


def _kv_heads(config: Any, state: tuple[str, ...]) -> list[int]:
    return [0 if kind in state else config.num_key_value_heads for kind in config.layer_types]


def _mamba2_among(config: Any) -> dict[str, Any]:
    return {
        "ssm__conv_kernel": config.mamba_d_conv,
        "ssm__inner_size": config.mamba_n_heads * config.mamba_d_head,
        "ssm__state_size": config.mamba_d_state,
        "ssm__time_step_rank": config.mamba_n_heads,
        "ssm__group_count": config.mamba_n_groups,
    }


def _granitehybrid(config: Any) -> dict[str, Any]:
    return (
        _granite(config)
        | _mamba2_among(config)
        | {
            "attention__head_count_kv": _kv_heads(config, ("mamba", "linear_attention")),
            "rope__scaling__finetuned": config.position_embedding_type == "rope",
        }
    )


def _jamba(config: Any) -> dict[str, Any]:
    period, offset = config.attn_layer_period, config.attn_layer_offset
    return {
        "attention__head_count_kv": [
            config.num_key_value_heads if n % period == offset else 0
            for n in range(config.num_hidden_layers)
        ],
        "expert_count": config.num_experts,
        "ssm__conv_kernel": config.mamba_d_conv,
        "ssm__inner_size": config.mamba_expand * config.hidden_size,
        "ssm__state_size": config.mamba_d_state,
        "ssm__time_step_rank": config.mamba_dt_rank,
    }


def _lfm2(config: Any) -> dict[str, Any]:
    moe = config.model_type == "lfm2_moe"
    return {
        "attention__layer_norm_rms_epsilon": config.norm_eps,
        "attention__head_count_kv": _kv_heads(config, ("conv",)),
        "expert_count": config.num_experts if moe else None,
        "expert_gating_func": 2 if moe else None,
        "leading_dense_block_count": config.num_dense_layers if moe else None,
        "shortconv__l_cache": config.conv_L_cache,
    }


def _nemotron_h(config: Any) -> dict[str, Any]:
    """How much of a head turns is said wrongly in real files, since nothing does."""
    kinds = config.layer_types
    dense = "moe" not in kinds
    inner = config.intermediate_size if dense else config.moe_intermediate_size
    experts = {
        "expert_count": config.n_routed_experts,
        "expert_group_count": config.n_group,
        "expert_shared_count": config.n_shared_experts,
        "expert_shared_feed_forward_length": config.moe_shared_expert_intermediate_size,
        "expert_weights_norm": config.norm_topk_prob,
        "expert_weights_scale": config.routed_scaling_factor,
    }
    without = dict.fromkeys((*experts, "expert_used_count", "expert_feed_forward_length"))
    return (without if dense else experts) | {
        "attention__head_count_kv": [
            config.num_key_value_heads if kind == "full_attention" else 0 for kind in kinds
        ],
        "attention__layer_norm_rms_epsilon": config.layer_norm_epsilon,
        "expert_group_used_count": None,
        "feed_forward_length": [inner if kind in ("mlp", "moe") else 0 for kind in kinds],
        "rope__dimension_count": config.hidden_size // config.num_attention_heads // 2,
        "rope__scaling__finetuned": False,
        "ssm__conv_kernel": config.conv_kernel,
        "ssm__inner_size": config.mamba_num_heads * config.mamba_head_dim,
        "ssm__state_size": config.ssm_state_size,
        "ssm__time_step_rank": config.mamba_num_heads,
        "ssm__group_count": config.n_groups,
    }


def _qwen3next(config: Any) -> dict[str, Any]:
    return _qwen2moe(config) | {
        "full_attention_interval": 1 + config.layer_types.index("full_attention"),
        "ssm__conv_kernel": config.linear_conv_kernel_dim,
        "ssm__inner_size": config.linear_num_value_heads * config.linear_value_head_dim,
        "ssm__state_size": config.linear_key_head_dim,
        "ssm__time_step_rank": config.linear_num_value_heads,
        "ssm__group_count": config.linear_num_key_heads,
    }


_OWN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "cohere2": _windowed,
    "deepseek2": _deepseek2,
    "falcon-h1": lambda c: _mamba2_among(c) | {"ssm__inner_size": c.mamba_d_ssm},
    "gemma2": _windowed,
    "gemma3": _windowed,
    "glm4moe": _routed,
    "gpt-oss": lambda c: _windowed(c) | {"expert_feed_forward_length": c.intermediate_size},
    "granite": _granite,
    "granitehybrid": _granitehybrid,
    "granitemoe": _granite,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "lfm2moe": _lfm2,
    "llama4": _llama4,
    "mistral3": _mistral3,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h,
    "olmo2": _olmo2,
    "olmoe": lambda c: {"expert_count": c.num_experts},
    "phi3": _phi3,
    "qwen2moe": _qwen2moe,
    "qwen3next": _qwen3next,
    "stablelm": lambda c: {"use_parallel_residual": c.use_parallel_residual},
}


# ---- tensors ----


def _saved(model: Any) -> dict[str, np.ndarray]:
    """The tensors of the model's files, which hold a mixture's experts otherwise than memory."""
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        [file] = Path(folder).glob("*.safetensors")
        return {name: tensor.float().numpy() for name, tensor in load_file(file).items()}


def _ordered(arch: str, config: Any, name: str, packed: np.ndarray) -> np.ndarray:
    """Rows are quantised one by one, so that those of q and k may be put in order afterwards."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    own = heads.get(name.split(".")[-2])
    return permute(packed, own) if arch in _PERMUTED and own else packed


def _converted(
    arch: str,
    config: Any,
    name: str,
    array: np.ndarray,
    metadata: dict[str, Any],
    older: bool,
) -> Named:
    """Under the names and in the layout that the converter gives to the map of names."""
    if arch in _NORMS_PLUS_ONE and name.endswith("norm.weight") and "linear_attn" not in name:
        array = array + 1
    if name.endswith(".A_log"):
        array = -np.exp(array)
    if "conv1d.weight" in name or "conv.conv.weight" in name:
        array = array.squeeze(1)
    if arch in _MAMBA2 and name.endswith((".A_log", ".D")):
        array = array[:, None]
    if arch in _MAMBA2 and name.endswith((".mixer.norm.weight", ".mamba.norm.weight")):
        groups = getattr(config, "mamba_n_groups", None) or config.n_groups
        array = array.reshape(groups, -1)
    match arch, name.split(".")[4:]:
        case "gpt-oss", ["experts", stacked]:
            yield from _gpt_oss(name, stacked, array)
        case "llama4", ["experts", stacked]:
            array = np.ascontiguousarray(array.swapaxes(1, 2))
            yield from _halves(name + ".weight", array, stacked == "gate_up_proj")
        case "granitemoe" | "granitehybrid", ["input_linear", "weight"]:
            yield from _halves(name, array, True)
        case "qwen3next", ["in_proj_qkvz", "weight"] if not older:
            yield from _split_qkvz(config, name, array)
        case "deepseek2", ["kv_b_proj", "weight"] if metadata["attention__key_length_mla"]:
            yield from _split_kv_b(config, name, array)
        case _:
            yield name, array


def _gpt_oss(name: str, stacked: str, array: np.ndarray) -> Named:
    """Gates and ups lie in turn; matrices are turned around."""
    kind = "bias" if stacked.endswith("_bias") else "weight"
    array = array if kind == "bias" else np.ascontiguousarray(array.swapaxes(1, 2))
    path = name.removesuffix(stacked)
    if stacked.startswith("down"):
        yield f"{path}down_proj.{kind}", array
        return
    yield f"{path}gate_proj.{kind}", np.ascontiguousarray(array[:, ::2])
    yield f"{path}up_proj.{kind}", np.ascontiguousarray(array[:, 1::2])


def _halves(name: str, array: np.ndarray, halves: bool) -> Named:
    if not halves:
        yield name, array
        return
    gate, up = np.split(array, 2, axis=-2)
    stem = name.replace("gate_up_proj", "{}_proj").replace("input_linear", "{}_proj")
    stem = stem.replace("block_sparse_moe.", "mlp.experts.").replace(
        "shared_mlp", "mlp.shared_expert"
    )
    yield stem.format("gate"), np.ascontiguousarray(gate)
    yield stem.format("up"), np.ascontiguousarray(up)


def _split_kv_b(config: Any, name: str, array: np.ndarray) -> Named:
    """Keys and values of each head; keys are turned around."""
    plain = config.qk_nope_head_dim
    heads = array.reshape(config.num_attention_heads, -1, array.shape[-1])
    keys = np.ascontiguousarray(heads[:, :plain].swapaxes(1, 2))
    yield name.replace("kv_b_proj", "k_b_proj"), keys
    yield name.replace("kv_b_proj", "v_b_proj"), np.ascontiguousarray(heads[:, plain:])


def _split_qkvz(config: Any, name: str, array: np.ndarray) -> Named:
    """Rows of all key heads' queries, then of their keys, then of their values; gates apart."""
    keys = config.linear_num_key_heads
    values = config.linear_num_value_heads // keys * config.linear_value_head_dim
    ends = np.cumsum([config.linear_key_head_dim] * 2 + [values])
    heads = array.reshape(keys, -1, array.shape[-1])
    *qkv, z = (part.reshape(-1, array.shape[-1]) for part in np.split(heads, ends, axis=1))
    yield name.replace("in_proj_qkvz", "in_proj_qkv"), np.concatenate(qkv)
    yield name.replace("in_proj_qkvz", "in_proj_z"), z


def _stacked(written: dict[str, Any]) -> dict[str, Any]:
    """Experts, and norms of each head, are one tensor."""
    groups: dict[str, list[Any]] = {}
    for name, entry in written.items():
        one = re.sub(r"(experts|layernorm\.norms)\.\d+\.", r"\1.", name)
        groups.setdefault(one.replace("layernorm.norms", "layernorm"), []).append((name, entry))
    return {
        one: (np.stack([packed for _, (packed, _) in several]), several[0][1][1])
        if several[0][0] != one
        else several[0][1]
        for one, several in groups.items()
    }


def _gguf_name(names: gguf.TensorNameMap, name: str) -> str:
    if name.endswith("e_score_correction_bias"):
        name = name.replace("_bias", ".bias")
    name = name.removesuffix(".dt_bias") + ".dt_proj.bias" if name.endswith(".dt_bias") else name
    name = re.sub(r"^model\.(.*feed_forward\.experts\.w\d)", r"\1", name)
    name = re.sub(r"^backbone\.(layers\.\d+)\.mixer\.experts", r"model.\1.mlp.experts", name)
    if name.endswith("expert_bias"):
        name += ".bias"
    if name.endswith("sinks"):
        name += ".weight"
    found = names.get_name(name, (".weight", ".bias"))
    assert found is not None, name
    return found


def _write_rope_factors(writer: gguf.GGUFWriter, model: Any) -> None:
    """Llama 3's scaling is kept as the factor that divides each frequency."""
    rope = getattr(model.config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        for which in ("long", "short"):
            factors = np.array(rope[f"{which}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{which}.weight", factors)
    if rope.get("rope_type") != "llama3":
        return
    scaled = model.model.rotary_emb.inv_freq.numpy()
    dim = 2 * len(scaled)
    plain = rope["rope_theta"] ** -(np.arange(0, dim, 2) / dim)
    writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
