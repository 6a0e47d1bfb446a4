"""GGUF files of tiny models, written as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tiny_gguf(path: Path, model: Any, kind: str = "F32", **metadata: Any) -> dict[str, np.ndarray]:
    """Write `model` (of Transformers; llama, qwen2 or qwen3) with its matrices as `kind`.

    `metadata` adds or replaces keys of the architecture, dots written as two underscores.
    Gives the values that the file stands for, dequantised, by their Hugging Face names.
    """
    config = model.config
    arch = config.model_type
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (_metadata(config) | metadata).items():
        _add(writer, f"{arch}.{key.replace('__', '.')}", value)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_bos_token_id(config.bos_token_id)
    values = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values[name] = _write(writer, name, tensor.numpy(), config, GGMLQuantizationType[kind])
    _write_rope_factors(writer, model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """The converter's order of q and k rows for `llama`."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def _metadata(config: Any) -> dict[str, Any]:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention__head_count": config.num_attention_heads,
        "attention__head_count_kv": config.num_key_value_heads,
        "attention__layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention__key_length": head_dim,
        "attention__value_length": head_dim,
        "rope__freq_base": config.rope_parameters["rope_theta"],
        "vocab_size": config.vocab_size,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    adders.get(type(value), writer.add_string)(key, value)


def _write(
    writer: gguf.GGUFWriter, name: str, array: np.ndarray, config: Any, kind: GGMLQuantizationType
) -> np.ndarray:
    """One tensor; vectors stay float32. Gives its values as the file keeps them."""
    if array.ndim == 1:
        kind = GGMLQuantizationType.F32
    packed = gguf.quants.quantize(array, kind)
    values = gguf.quants.dequantize(packed, kind)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    own = heads.get(name.split(".")[-2])
    if config.model_type == "llama" and own is not None:
        packed = permute(packed, own)  # rows are quantised one by one
    writer.add_tensor(_gguf_name(name), packed, raw_dtype=kind)
    return values.reshape(array.shape)


def _gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in _NAMES:
        return f"{_NAMES[stem]}.{kind}"
    _, _, index, rest = stem.split(".", 3)
    return f"blk.{index}.{_NAMES[rest]}.{kind}"


def _write_rope_factors(writer: gguf.GGUFWriter, model: Any) -> None:
    """Llama 3's scaling is kept as the factor that divides each frequency."""
    rope = model.config.rope_parameters
    if rope["rope_type"] != "llama3":
        return
    scaled = model.model.rotary_emb.inv_freq.numpy()
    dim = 2 * len(scaled)
    plain = rope["rope_theta"] ** -(np.arange(0, dim, 2) / dim)
    writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
