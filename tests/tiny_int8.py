"""Tiny models whose linears are int8, in a folder as llm-compressor writes it."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from octavo.weights.safetensors_files import SINGLE

_INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "group_size": None, "actorder": None}
_WEIGHTS = {**_INT8, "strategy": "channel", "dynamic": False, "observer": "minmax"}
_ACTIVATIONS = {**_INT8, "strategy": "token", "dynamic": True, "observer": None}


def int8_config(activations: bool = True) -> dict[str, Any]:
    """The quantization_config of a model with int8 weights, and int8 activations or not."""
    group = {
        "targets": ["Linear"],
        "weights": _WEIGHTS,
        "input_activations": _ACTIVATIONS if activations else None,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "sparsity_config": {},
        "transform_config": {},
        "version": "0.12.2",
    }


def tiny_int8(
    folder: Path,
    model: Any,
    *,
    activations: bool = True,
    ignore: Collection[str] = ("lm_head",),
    scale_dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Write `model` (of Transformers) with its linears in int8, but for those of `ignore`, and
    give it the values that the folder stands for."""
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    for name in quantised(model, ignore):
        weight = model.get_submodule(name).weight.data
        scales = (weight.abs().amax(1, keepdim=True) / 127.5).to(scale_dtype)
        codes = (weight / scales).round().clamp(-128, 127)
        tensors |= {f"{name}.weight": codes.to(torch.int8), f"{name}.weight_scale": scales}
        weight.copy_(codes * scales.float())
    model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = int8_config(activations)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / SINGLE)


def quantised(model: Any, ignore: Collection[str]) -> list[str]:
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name not in ignore
    ]


def quantise_activations(model: Any, ignore: Collection[str]) -> None:
    """From now on, linears of `model` read what int8 with one scale a token leaves of it."""

    def rounded(_: Any, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        scales = inputs[0].abs().amax(-1, keepdim=True) / 127
        return (inputs[0] / scales).round() * scales

    for name in quantised(model, ignore):
        model.get_submodule(name).register_forward_pre_hook(rounded)
