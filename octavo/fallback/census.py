"""Which of the causal language models that Transformers knows can be served, and why not the rest.

`python -m octavo.fallback.census [TYPE ...]` tests each type's default config by a tiny copy of it
and prints lines of `census.tsv`, which is what this version of Octavo promises.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any

from octavo.base.errors import ModelError

# Where a class's defaults are no model, or leave out what its checkpoints have.
_GIVEN: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 20,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0}
            for kind in ("sliding_attention", "full_attention")
        },
    },
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 8, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
    },
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "xmod": {"default_language": "en_XX"},
}


def table() -> dict[str, str]:
    """By type of model, why it is not served; "" where it is. As it was found and written down."""
    return {model_type: reason for model_type, reason, *_ in _rows()}


def as_decoders() -> list[str]:
    """Of those that are served, types that are encoders unless their config says `is_decoder`."""
    return [model_type for model_type, _, *note in _rows() if note]


def _rows() -> list[list[str]]:
    lines = files("octavo.fallback").joinpath("census.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines]


def known_types() -> list[str]:
    """Of the installed Transformers."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def examined(model_type: str, as_decoder: bool = True) -> str:
    """Why a type is not served, "" where it is; tested now, in about a second. `as_decoder`: with
    `is_decoder` in its config."""
    from octavo.fallback.classes import decoder_class
    from octavo.fallback.selftest import self_test

    try:
        config = _config(model_type)
    except Exception as error:  # of code that is not ours
        return f"its default config is none: {type(error).__name__}"
    try:
        made, config = decoder_class(config)
        if as_decoder and hasattr(config, "is_decoder"):
            config.is_decoder = True
        self_test(made, config)
    except ModelError as error:
        return str(error)
    return ""


def line(model_type: str) -> str:
    """Of census.tsv."""
    reason = examined(model_type)
    encodes = not reason and getattr(_config(model_type), "is_decoder", True) is False
    if encodes and examined(model_type, as_decoder=False):
        return f"{model_type}\t\tas a decoder"
    return f"{model_type}\t{reason}"


def _config(model_type: str) -> Any:
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type](**_GIVEN.get(model_type, {}))


if __name__ == "__main__":
    for name in sys.argv[1:] or known_types():
        print(line(name), flush=True)
