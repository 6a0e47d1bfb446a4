"""GGUF files of every family, against the models that they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dense import DenseModel
from safetensors.torch import save_file
from tiny_gguf import architecture, kv_b_in_one, tiny_gguf
from tiny_models import FAMILIES, HYBRIDS, tiny_config, tiny_model
from transformers import AutoModelForCausalLM

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.models.gguf_architectures import ARCHITECTURES

IDS = [n * 7 % 512 for n in range(60)]

# Those of Falcon-H1 are multiplied into the weights of a file.
_NO_MULTIPLIERS: dict[str, Any] = {
    "attention_in_multiplier": 1.0,
    "attention_out_multiplier": 1.0,
    "embedding_multiplier": 1.0,
    "key_multiplier": 1.0,
    "lm_head_multiplier": 1.0,
    "mlp_multipliers": [1.0] * 2,
    "ssm_in_multiplier": 1.0,
    "ssm_multipliers": [1.0] * 5,
    "ssm_out_multiplier": 1.0,
}

# What no GGUF metadata say is as in the public models.
_AS_PUBLIC: dict[str, dict[str, Any]] = {
    "falcon_h1": _NO_MULTIPLIERS,
    "falcon_h1_normed": {
        **_NO_MULTIPLIERS,
        "mamba_norm_before_gate": False,
        "time_step_limit": [0.0, 1e9],
    },
    "granitemoehybrid": {"position_embedding_type": "nope"},
    "lfm2": {"block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"routed_scaling_factor": 1.0, "tie_word_embeddings": True},
    "cohere2": {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "deepseek_v2": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 32,
            "mscale": 0.9,
            "mscale_all_dim": 0.9,
        }
    },
    "gemma2": {"query_pre_attn_scalar": 32},
    "gemma3": {
        "query_pre_attn_scalar": 32,
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    },
    "llama4": {
        "attention_chunk_size": 8192,
        "attn_scale": 0.1,
        "floor_scale": 8192,
        "no_rope_layers": [1, 1, 1, 0],
    },
    "mistral": {"sliding_window": None},
    "nemotron_h": {
        "layer_types": ["linear_attention", "moe", "full_attention", "linear_attention", "moe"],
        "n_group": 1,
        "topk_group": 1,
    },
    "qwen2_moe": {"decoder_sparse_step": 1},
    "qwen3_moe": {"mlp_only_layers": []},
    "qwen3_next": {
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "mlp_only_layers": [],
    },
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
}
# Windows that no file of the architecture has, and what is not read.
_NOT_IN_GGUF = (
    "ministral",
    "qwen2_mixed",
    "bamba",
    "qwen3_5",
    "qwen3_5_moe",
)
WRITTEN = [family for family in (*FAMILIES, *HYBRIDS) if family not in _NOT_IN_GGUF]


def made(folder: Path, family: str, **overrides: Any) -> Any:
    return tiny_model(folder, family, **_AS_PUBLIC.get(family, {}), **overrides)


def check_logits(path: Path, oracle: Any) -> None:
    with torch.inference_mode():
        theirs = oracle(torch.tensor([IDS])).logits[0]
    ours = DenseModel(ModelFiles("tiny", path)).logits(IDS)
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


@pytest.mark.parametrize("family", WRITTEN)
def test_logits_equal_transformers(tmp_path: Path, family: str) -> None:
    model = made(tmp_path, family)
    tiny_gguf(tmp_path / "m.gguf", model)
    check_logits(tmp_path / "m.gguf", model)


def test_every_architecture_is_written_here() -> None:
    written = {architecture(tiny_config(f, **_AS_PUBLIC.get(f, {}))) for f in WRITTEN}
    assert written | {"nemotron_h"} == set(ARCHITECTURES)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("llama", "Q8_0"), ("qwen3_moe", "Q8_0"), ("glm4", "Q8_0"), ("qwen2_moe", "MXFP4")],
)
def test_logits_of_quantised_files(tmp_path: Path, family: str, kind: str) -> None:
    """Those of Transformers with the values that the file stands for."""
    whole_blocks = {"moe_intermediate_size": 64} if family.endswith("_moe") else {}
    model = made(tmp_path, family, **whole_blocks)
    values = tiny_gguf(tmp_path / "m.gguf", model, kind)
    for file in tmp_path.glob("*.safetensors*"):
        file.unlink()
    save_file({n: torch.tensor(v) for n, v in values.items()}, tmp_path / "model.safetensors")
    check_logits(
        tmp_path / "m.gguf", AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    )


def test_older_files_have_keys_and_values_in_one_tensor(tmp_path: Path) -> None:
    model = made(tmp_path, "deepseek_v3")
    tiny_gguf(tmp_path / "m.gguf", model, **kv_b_in_one(model.config))
    check_logits(tmp_path / "m.gguf", model)


def test_older_files_have_queries_keys_values_and_gates_in_one_tensor(tmp_path: Path) -> None:
    model = made(tmp_path, "qwen3_next")
    tiny_gguf(tmp_path / "m.gguf", model, older=True)
    names = ModelFiles("m", tmp_path / "m.gguf").gguf.tensors
    assert "blk.0.ssm_in.weight" in names and "blk.0.attn_qkv.weight" not in names
    check_logits(tmp_path / "m.gguf", model)


@pytest.mark.parametrize("biases", [False, True])
def test_nemotron_h_without_experts(tmp_path: Path, biases: bool) -> None:
    kinds = ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"]
    names = ("mlp_bias", "use_bias")
    model = tiny_model(tmp_path, "nemotron_h", layer_types=kinds, **dict.fromkeys(names, biases))
    tiny_gguf(tmp_path / "m.gguf", model)
    assert (
        ModelFiles("m", tmp_path / "m.gguf").gguf.metadata["general.architecture"] == "nemotron_h"
    )
    check_logits(tmp_path / "m.gguf", model)


@pytest.mark.parametrize(
    ("key", "found", "words"),
    [
        ("feed_forward_length", 48, "feed_forward_length must be given for each layer"),
        ("feed_forward_length", [0, 48], "there must be 5 layer types"),
        ("attention__head_count_kv", [0, 0, 2], "there must be 5 layer types"),
    ],
)
def test_nemotron_h_says_what_each_layer_is(
    tmp_path: Path, key: str, found: Any, words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        spec(tmp_path, "nemotron_h", **{key: found})


def test_a_draft_behind_the_layers_of_nemotron_h(tmp_path: Path) -> None:
    """It has both, attention and experts, in the block after the last layer."""
    model = made(tmp_path, "nemotron_h")
    tiny_gguf(
        tmp_path / "m.gguf",
        model,
        block_count=6,
        nextn_predict_layers=1,
        feed_forward_length=[0, 48, 0, 0, 48, 48],
        attention__head_count_kv=[0, 0, 2, 0, 0, 2],
    )
    check_logits(tmp_path / "m.gguf", model)


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    model = made(tmp_path, "glm4_moe")
    tiny_gguf(tmp_path / "m.gguf", model, nextn_predict_layers=1)
    model.model.layers = model.model.layers[:1]
    check_logits(tmp_path / "m.gguf", model)


def spec(path: Path, family: str, **metadata: Any) -> Any:
    tiny_gguf(path / "m.gguf", made(path, family), **metadata)
    return model_spec(ModelFiles("m", path / "m.gguf"), "bfloat16")


@pytest.mark.parametrize("pattern", [2, [True, False, True, False, True, False]])
def test_a_pattern_of_windows_in_the_metadata(tmp_path: Path, pattern: Any) -> None:
    found = spec(tmp_path, "gemma3", attention__sliding_window_pattern=pattern)
    windows = [found.attends[n].window for n in range(6)]
    assert windows == [24, None, 24, None, 24, None]


def test_the_largest_gemmas_scale_scores_otherwise(tmp_path: Path) -> None:
    usual = spec(tmp_path, "gemma2")
    assert usual.attends[0].scale == 32**-0.5
    model = made(tmp_path, "gemma2")
    tiny_gguf(tmp_path / "m.gguf", model, block_count=46)
    largest = model_spec(ModelFiles("m", tmp_path / "m.gguf"), "bfloat16")
    assert largest.attends[0].scale == 16**-0.5  # hidden size / heads


def test_yarn_multiplies_its_attention_factor(tmp_path: Path) -> None:
    yarn = {
        "rope__scaling__type": "yarn",
        "rope__scaling__factor": 4.0,
        "rope__scaling__original_context_length": 128,
    }
    factors = [
        spec(tmp_path, "qwen2", **yarn, **extra).layers[0].ops[0].rope.attention_factor
        for extra in ({}, {"rope__scaling__attn_factor": 0.5})
    ]
    assert factors[0] == pytest.approx(0.1 * np.log(4) + 1)
    assert factors[1] == pytest.approx(factors[0] / 2)


def test_stop_tokens_and_length(tmp_path: Path) -> None:
    found = spec(tmp_path, "llama3")
    assert (found.eos_token_ids, found.bos_token_id, found.max_model_len) == ((2,), 1, 512)


@pytest.mark.parametrize(
    ("family", "key", "found"),
    [
        ("llama", "attention__sliding_window", 64),
        ("llama", "final_logit_softcapping", 30.0),
        ("llama", "rope__dimension_count", 8),
        ("llama", "attention__value_length", 8),
        ("llama", "rope__scaling__attn_factor", 0.5),
        ("llama", "something_new", True),
        ("llama", "attention__head_count_kv", [2, 1, 2]),
        ("qwen2", "expert_count", 8),
        ("qwen3_moe", "expert_gating_func", 2),
        ("glm4_moe", "expert_gating_func", 1),
        ("deepseek_v2", "expert_weights_norm", True),
        ("llama4", "attention__sliding_window", 0),
        ("granite", "rope__scaling__yarn_log_multiplier", 1.0),
    ],
)
def test_keys_refused_by_name(tmp_path: Path, family: str, key: str, found: Any) -> None:
    with pytest.raises(ModelError, match=key.replace("__", r"\.")):
        spec(tmp_path, family, **{key: found})


def test_unknown_rope_type_is_named(tmp_path: Path) -> None:
    unknown = {"rope__scaling__type": "dynamic", "rope__scaling__factor": 2.0}
    with pytest.raises(ModelError, match="'dynamic'"):
        spec(tmp_path, "llama", **unknown)


def test_an_unknown_architecture_lists_the_known(tmp_path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "gpt9")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match="'gpt9' of GGUF; known: chatglm, cohere2"):
        model_spec(ModelFiles("m", tmp_path / "m.gguf"), "bfloat16")
