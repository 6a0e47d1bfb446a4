"""Specs of the families against models that Transformers made, and every refusal by name."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_gguf import tiny_gguf
from tiny_models import DENSE, tiny_config, tiny_model

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.models.families import default_dtype, generation_defaults, model_spec
from octavo.models.spec import AttentionSpec, ModelSpec

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def folder(path: Path, config: dict[str, Any], generation: Any = None) -> ModelFiles:
    (path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return ModelFiles("m", path)


def spec_of(path: Path, **changes: Any) -> ModelSpec:
    return model_spec(folder(path, {**CONFIG, **changes}), "bfloat16")


def attention(spec: ModelSpec, layer: int) -> AttentionSpec:
    [found] = [op for op in spec.layers[layer].ops if isinstance(op, AttentionSpec)]
    return found


def windows(spec: ModelSpec) -> list[int | None]:
    return [spec.attends[n].window for n in range(len(spec.layers))]


@pytest.mark.parametrize(
    ("family", "overrides"),
    [(family, {}) for family in DENSE]
    + [
        ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 32}),
        ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
        ("mistral", {"head_dim": 8, "sliding_window": None}),
        ("qwen3", {"attention_bias": True}),
    ],
)
def test_parameters_and_rope_are_the_models(
    tmp_path: Path, family: str, overrides: dict[str, Any]
) -> None:
    model = tiny_model(tmp_path, family, **overrides)
    spec = model_spec(ModelFiles("tiny", tmp_path), "float32")
    theirs = {name: tuple(param.shape) for name, param in model.named_parameters()}
    assert {param.name: param.shape for param in spec.params()} == theirs
    rope = attention(spec, 0).rope
    assert rope is not None
    np.testing.assert_array_max_ulp(
        np.array(rope.inv_freq, np.float32), model.model.rotary_emb.inv_freq.numpy(), maxulp=1
    )
    assert (spec.tied, spec.max_model_len, spec.eos_token_ids, spec.bos_token_id) == (
        model.config.tie_word_embeddings,
        512,
        (2,),
        1,
    )


def test_windows_by_layer_are_transformers_own(tmp_path: Path) -> None:
    model = tiny_model(
        tmp_path, "qwen2", num_hidden_layers=3, use_sliding_window=True, sliding_window=24,
        max_window_layers=1,
    )  # fmt: skip
    spec = model_spec(ModelFiles("tiny", tmp_path), "float32")
    theirs = [layer.self_attn.sliding_window for layer in model.model.layers]
    assert windows(spec) == theirs == [None, 24, 24]
    assert [(g.kind, g.layers, g.window) for g in spec.kv_groups] == [
        ("full", (0,), None),
        ("window", (1, 2), 24),
    ]


def test_windows_without_layer_types(tmp_path: Path) -> None:
    qwen = {"model_type": "qwen2", "sliding_window": 24, "max_window_layers": 1}
    on = spec_of(tmp_path, **qwen, use_sliding_window=True)
    assert windows(on) == [None, 24]
    off = spec_of(tmp_path, **qwen, use_sliding_window=False)
    absent = spec_of(tmp_path, **qwen)
    assert {*windows(off), *windows(absent)} == {None}


@pytest.mark.parametrize("family", ["qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"])
@pytest.mark.parametrize("used", [False, True])
def test_windows_are_where_the_class_has_them(tmp_path: Path, family: str, used: bool) -> None:
    """Qwen3-MoE lists no types of layers: all have the window, if it is used."""
    asked = {"num_hidden_layers": 6, "sliding_window": 24, "use_sliding_window": used}
    config = tiny_config(family, **asked, max_window_layers=3, no_rope_layers=None).to_dict()
    kinds = config.pop("layer_types", None) or ["sliding_attention" if used else ""] * 6
    (tmp_path / "config.json").write_text(json.dumps(config | asked))
    found = windows(model_spec(ModelFiles("m", tmp_path), "bfloat16"))
    assert found == [24 if kind == "sliding_attention" else None for kind in kinds]
    assert used == (24 in found)


def test_unknown_architecture_says_where_the_known_are(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'gpt9' is no type .*`octavo models` lists"):
        spec_of(tmp_path, model_type="gpt9")


def test_a_config_that_says_no_type(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="config: model_type is missing"):
        spec_of(tmp_path, model_type=None)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ModelError, match=r"config\.json must hold a JSON object"):
        model_spec(ModelFiles("m", tmp_path), "bfloat16")


def test_the_text_of_a_model_that_reads_more_is_taken_where_that_is_known_to_be_plain(
    tmp_path: Path,
) -> None:
    seeing = {"text_config": CONFIG, "vision_config": {}}
    llava = model_spec(folder(tmp_path, {"model_type": "llava", **seeing}), "bfloat16")
    assert llava == spec_of(tmp_path)
    with pytest.raises(ModelError, match="paligemma reads more than text"):
        model_spec(folder(tmp_path, {"model_type": "paligemma", **seeing}), "bfloat16")


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        model_spec(ModelFiles("m", tmp_path), "bfloat16")


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_act": "relu6"},
        {"quantization_config": {"quant_method": "awq"}},
        {"attn_logit_softcapping": 50.0},
        {"num_local_experts": 8},
        {"partial_rotary_factor": 0.5},
        {"logits_scaling": 8.0},
        {"sliding_window": 1024},
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"num_attention_heads": 4.5},
        {"num_key_value_heads": 3},
        {"num_hidden_layers": None},
        {"rms_norm_eps": "small"},
        {"tie_word_embeddings": "yes"},
        {"head_dim": 7},
        {"v_head_dim": 8},
        {"layer_types": ["full_attention", "linear_attention"]},
        {"layer_types": ["full_attention"]},
        {"layer_types": ["full_attention", "odd_attention"]},
        {"eos_token_id": "</s>"},
    ],
)
def test_config_refused_by_name(tmp_path: Path, change: dict[str, Any]) -> None:
    name = next(iter(change))
    word = {
        "rope_scaling": "dynamic",
        "num_key_value_heads": "3 KV heads",
        "v_head_dim": "KV fields give",
        "layer_types": "layer type|state layers",
    }.get(name, name)
    with pytest.raises(ModelError, match=word):
        spec_of(tmp_path, **change)


def test_unknown_ways_to_choose_experts_are_named(tmp_path: Path) -> None:
    config = tiny_config("deepseek_v2", topk_method="noaux_tc").to_dict()
    with pytest.raises(ModelError, match="topk_method='noaux_tc' is not supported"):
        model_spec(folder(tmp_path, config), "bfloat16")


@pytest.mark.parametrize("change", [{"pretraining_tp": 4}, {"num_experts": 0}, {"is_causal": True}])
def test_harmless_options_pass(tmp_path: Path, change: dict[str, Any]) -> None:
    assert spec_of(tmp_path, **change) == spec_of(tmp_path)


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [
        (7, None, (7,)),
        ([7, 8], None, (7, 8)),
        (None, None, ()),
        (7, {"eos_token_id": [9, 7]}, (9, 7)),
        (7, {"top_k": 3}, (7,)),
    ],
)
def test_eos(tmp_path: Path, config: Any, generation: Any, ids: tuple[int, ...]) -> None:
    files = folder(tmp_path, {**CONFIG, "eos_token_id": config}, generation)
    assert model_spec(files, "bfloat16").eos_token_ids == ids


@pytest.mark.parametrize(
    ("found", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({"torch_dtype": "torch.float32"}, "float32"),
        ({}, "float32"),
    ],
)
def test_default_dtype(tmp_path: Path, found: dict[str, Any], dtype: str) -> None:
    assert default_dtype(folder(tmp_path, found)) == dtype


def test_unknown_dtype(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="float8"):
        default_dtype(folder(tmp_path, {"dtype": "float8"}))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"), ("Q8_0", "bfloat16")],
)
def test_default_dtype_of_gguf(tmp_path: Path, kind: str, dtype: str) -> None:
    tiny_gguf(tmp_path / "m.gguf", tiny_model(tmp_path, "qwen2"), kind)
    assert default_dtype(ModelFiles("m", tmp_path / "m.gguf")) == dtype


@pytest.mark.parametrize(
    ("generation", "defaults"),
    [
        (None, {}),
        ({"do_sample": False, "temperature": 0.6}, {}),
        (
            {
                "do_sample": True,
                "temperature": 0.6,
                "top_k": 20,
                "max_new_tokens": 99,
                "typical": 1,
            },
            {"temperature": 0.6, "top_k": 20, "max_tokens": 99},
        ),
        ({"top_p": 0.9, "min_p": None, "eos_token_id": 3}, {"top_p": 0.9}),
    ],
)
def test_generation_defaults(tmp_path: Path, generation: Any, defaults: dict[str, Any]) -> None:
    assert generation_defaults(folder(tmp_path, CONFIG, generation)) == defaults


JUNK: list[Any] = ["x", [], {}, [None], {"type": []}, -1, 1.5, None, True]
FIELDS = CONFIG.keys() | {
    "rope_scaling",
    "rope_parameters",
    "rope_theta",
    "hidden_act",
    "head_dim",
    "rms_norm_eps",
    "layer_types",
    "sliding_window",
    "eos_token_id",
    "tie_word_embeddings",
    "quantization_config",
}


@pytest.mark.parametrize("field", sorted(FIELDS))
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_junk_in_any_field_is_a_model_error_or_read(
    tmp_path: Path, family: str, field: str
) -> None:
    for junk in JUNK:
        with contextlib.suppress(ModelError):
            spec = spec_of(tmp_path, **{"model_type": family, field: junk})
            assert all(min(param.shape) > 0 for param in spec.params())
