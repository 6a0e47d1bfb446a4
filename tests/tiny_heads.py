"""Tiny random EAGLE-3 heads in the published layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 64, 4, 2, 16, 96, 512


def tiny_head(
    folder: Path | str,
    *,
    drafted: int = 200,
    embedding: bool = False,
    prefix: str = "midlayer",
    width: int = 3 * HIDDEN,
    seed: int = 0,
    **config: Any,
) -> dict[str, np.ndarray]:
    """A head for the models of tiny_models that drafts so many of their tokens; gives its
    tensors."""
    rng = np.random.default_rng(seed)
    shapes = {
        "fc.weight": (HIDDEN, width),
        **{f"{prefix}.{n}.weight": (HIDDEN,) for n in _NORMS},
        **{f"{prefix}.{n}.weight": shape for n, shape in _MATRICES.items()},
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (drafted, HIDDEN),
        **({"embed_tokens.weight": (VOCAB, HIDDEN)} if embedding else {}),
    }
    tensors = {
        name: (rng.normal(1 if "norm" in name else 0, 0.15, shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    if drafted < VOCAB:
        ids = np.sort(rng.choice(VOCAB, drafted, replace=False))
        tensors["d2t"] = ids - np.arange(drafted)
        tensors["t2d"] = np.isin(np.arange(VOCAB), ids)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps({**_CONFIG, "draft_vocab_size": drafted, **config})
    )
    return tensors


_NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
_MATRICES = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, 2 * HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
_CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]},
}
