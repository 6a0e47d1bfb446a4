"""What published config.json files say, read here and by Transformers: the same facts and tensors.

`public_configs.json` has the fields of well-known models as their makers wrote them, with a few of
the layers. Transformers' models are built without values, on PyTorch's meta device.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.core_model_loading import revert_weight_conversion

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.models.spec import AttentionSpec, ExpertsSpec, LatentAttentionSpec, ModelSpec, RopeSpec
from octavo.weights.match import check

CONFIGS = json.loads((Path(__file__).parent / "public_configs.json").read_text())
REFUSED = {
    "command-r-plus": "use_qk_norm=True is not supported",
    "deepseek-v3-fp8": "quantization_config.quant_method='fp8' is not supported",
    "llama-4-scout-old": "attn_temperature_tuning must be true or false, got 4",
}
served = pytest.mark.parametrize("name", sorted(CONFIGS.keys() - REFUSED))


class Shapes:
    """A checkpoint of which nothing but the shapes is asked."""

    def __init__(self, found: dict[str, tuple[int, ...]]) -> None:
        self._found = found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._found


@cache
def theirs(name: str) -> Any:
    """Transformers' model, without values."""
    whole = CONFIGS[name]
    text = {**whole.get("text_config", whole)}
    text.pop("quantization_config", None)
    text |= {k: v for k, v in whole.items() if k == "tie_word_embeddings"}
    config = CONFIG_MAPPING[text["model_type"]].from_dict(text)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def ours(folder: Path, config: dict[str, Any], longest: int | None = None) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps(config))
    return model_spec(ModelFiles("m", folder), "float32", longest)


def seen(config: Any, layer: int) -> tuple[int | None, int | None]:
    """Window and chunk, as Transformers makes a layer's mask."""
    window = getattr(config, "sliding_window", None)
    kind = kind_of(config, layer) or ("sliding_attention" if window else "full_attention")
    chunk = config.attention_chunk_size if kind == "chunked_attention" else None
    return window if kind == "sliding_attention" else None, chunk


def kind_of(config: Any, layer: int) -> str:
    kinds = getattr(config, "layer_types", None)
    return kinds[layer] if kinds else ""


def rotary_tables(model: Any) -> Iterator[tuple[str, tuple[np.ndarray, float]]]:
    """By type of layer, or "" for all: the table and the factor of what it turns."""
    for path, module in model.named_modules():
        if path.endswith("rotary_emb"):
            made = type(module)(model.config)  # this time with values
            for name, table in made.named_buffers():
                if name.endswith("inv_freq") and "original" not in name:
                    kind = name.removesuffix("inv_freq")
                    yield (
                        kind.removesuffix("_"),
                        (table.numpy(), getattr(made, f"{kind}attention_scaling")),
                    )


def ropes(spec: ModelSpec) -> dict[int, RopeSpec]:
    return {
        n: op.rope
        for n, layer in enumerate(spec.layers)
        for op in layer.ops
        if isinstance(op, AttentionSpec | LatentAttentionSpec) and op.rope
    }


@served
def test_sizes(name: str, tmp_path: Path) -> None:
    spec, config = ours(tmp_path, CONFIGS[name]), theirs(name).config
    assert spec.vocab_size == config.vocab_size
    assert spec.hidden_size == config.hidden_size
    assert len(spec.layers) == config.num_hidden_layers
    assert spec.tied == config.tie_word_embeddings


@served
def test_attention(name: str, tmp_path: Path) -> None:
    """Of each layer that attends: heads, scale and window."""
    spec, model = ours(tmp_path, CONFIGS[name]), theirs(name)
    modules = {
        m.layer_idx: m for m in model.modules() if {"scaling", "layer_idx"} <= vars(m).keys()
    }
    assert spec.attends.keys() == modules.keys()
    for layer, module in modules.items():
        found = spec.attends[layer]
        assert found.num_heads == model.config.num_attention_heads
        assert found.scale == pytest.approx(module.scaling)
        assert (found.window, found.chunk) == seen(model.config, layer)
        if found.value_column is None:  # else the heads share a latent
            assert found.num_kv_heads == model.config.num_key_value_heads
            assert found.head_dim == module.head_dim


@served
def test_rotary_tables(name: str, tmp_path: Path) -> None:
    """longrope's short ones, with which a model of Transformers' begins."""
    config = theirs(name).config
    said = getattr(config, "rope_parameters", None) or {}
    short = said.get("rope_type") == "longrope"
    longest = said["original_max_position_embeddings"] if short else None
    found, tables = ropes(ours(tmp_path, CONFIGS[name], longest)), dict(rotary_tables(theirs(name)))
    assert bool(found) == bool(tables)
    for layer, rope in found.items():
        table, factor = tables.get("") or tables[kind_of(config, layer)]
        np.testing.assert_allclose(np.array(rope.inv_freq, np.float32), table, rtol=1e-6)
        assert rope.attention_factor == pytest.approx(factor)


@served
def test_experts(name: str, tmp_path: Path) -> None:
    spec, model = ours(tmp_path, CONFIGS[name]), theirs(name)
    found = {
        n: (len(op.ups), op.router.top_k)
        for n, layer in enumerate(spec.layers)
        for op in layer.ops
        if isinstance(op, ExpertsSpec)
    }
    config = model.config
    counts = (getattr(config, f"{x}_experts", None) for x in ("num_local", "num", "n_routed"))
    each = next((n for n in counts if n), 0), getattr(config, "num_experts_per_tok", 0)
    mixing = {int(p.split(".")[2]) for p, _ in model.named_modules() if p.endswith(".experts")}
    assert found == dict.fromkeys(mixing, each)


@served
def test_tensors(name: str, tmp_path: Path) -> None:
    """As the class would save them; what is quantised, before it is."""
    model = theirs(name)
    state = revert_weight_conversion(model, model.state_dict())
    plain = {k: v for k, v in CONFIGS[name].items() if k != "quantization_config"}
    check(ours(tmp_path, plain), Shapes({n: tuple(x.shape) for n, x in state.items()}))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=REFUSED[name]):
        ours(tmp_path, CONFIGS[name])
