"""Specs of models with recurrent states: the ways files name things, and what is refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from tiny_models import HYBRIDS, tiny_config

from octavo.base.errors import ModelError
from octavo.models.config import text_config
from octavo.models.families import FAMILIES
from octavo.models.mamba import LONGEST
from octavo.models.spec import Mamba2Spec, MlpSpec, ModelSpec, ShortConvSpec

Config = dict[str, Any]


def config_of(family: str, **changes: Any) -> Config:
    """As a file has it."""
    return json.loads(tiny_config(family).to_json_string(use_diff=False)) | changes


def spec_of(config: Config) -> ModelSpec:
    return FAMILIES.load(config["model_type"])(text_config(config), "float32")


def without(config: Config, *names: str) -> Config:
    return {name: found for name, found in config.items() if name not in names}


@pytest.mark.parametrize("family", HYBRIDS)
def test_states_and_attention_are_in_the_layers_that_the_config_says(family: str) -> None:
    kinds = tiny_config(family).layer_types
    spec = spec_of(config_of(family))
    for n, kind in enumerate(kinds):
        assert (n in spec.attends) == (kind in ("full_attention", "hybrid"))
        assert (n in spec.states) == (kind in ("linear_attention", "conv", "hybrid"))


@pytest.mark.parametrize("family", ["mamba", "falcon_mamba", "mamba2"])
def test_states_alone_know_no_positions(family: str) -> None:
    spec = spec_of(without(config_of(family), "max_position_embeddings"))
    assert spec.max_model_len == LONGEST
    assert [group.kind for group in spec.kv_groups] == ["state"]


def test_mambas_head_is_the_embedding_unless_the_file_says_otherwise() -> None:
    config = without(config_of("mamba"), "tie_word_embeddings")
    assert spec_of(config).tied
    assert not spec_of(config | {"tie_word_embeddings": False}).tied


def test_nemotrons_letters_are_its_list() -> None:
    listed = config_of("nemotron_h")
    letters = without(listed, "layers_block_type") | {"hybrid_override_pattern": "ME*M-E"}
    assert spec_of(letters) == spec_of(listed)


def test_lfm2s_older_names() -> None:
    new = config_of("lfm2")
    old = without(new, "layer_types", "intermediate_size", "tie_word_embeddings")
    assert spec_of(old | {"block_ff_dim": new["intermediate_size"]}) == spec_of(new)
    untied = spec_of(old | {"block_ff_dim": 128, "tie_embedding": False})
    assert not untied.tied


@pytest.mark.parametrize(
    ("changes", "inner"),
    [
        ({}, 96),  # two thirds of 128, up to a multiple of 32
        ({"block_ffn_dim_multiplier": 1.5}, 128),
        ({"block_auto_adjust_ff_dim": False}, 128),
    ],
)
def test_lfm2_adjusts_its_inner_size(changes: Config, inner: int) -> None:
    op = spec_of(config_of("lfm2", **changes)).layers[0].ops[1]
    assert isinstance(op, MlpSpec)
    assert op.up.out_features == inner


def test_bamba_without_attention() -> None:
    spec = spec_of(without(config_of("bamba"), "attn_layer_indices"))
    assert (list(spec.states), spec.attends) == ([0, 1, 2], {})


def test_bambas_heads_turn_half() -> None:
    spec = spec_of(without(config_of("bamba"), "rope_parameters"))
    (attention,) = (op for op in spec.layers[1].ops if hasattr(op, "rope"))
    assert attention.rope.rotary_dim == 8


@pytest.mark.parametrize("infinity", [float("inf"), {"__float__": "Infinity"}])
def test_infinity_in_both_spellings(infinity: Any) -> None:
    op = spec_of(config_of("mamba2", time_step_limit=[0.0, infinity])).states[0]
    assert isinstance(op, Mamba2Spec)
    assert op.dt_limits == (0.0, float("inf"))


def test_only_lfm2s_convolution_has_no_activation() -> None:
    for family in HYBRIDS:
        for op in spec_of(config_of(family)).states.values():
            activation = "none" if isinstance(op, ShortConvSpec) else "silu"
            assert op.convolution.activation == activation


@pytest.mark.parametrize(
    ("family", "changes", "word"),
    [
        ("mamba", {"hidden_act": "gelu"}, "only silu"),
        ("jamba", {"hidden_act": "gelu"}, "only silu"),
        ("nemotron_h", {"mamba_hidden_act": "gelu"}, "only silu"),
        ("qwen3_next", {"hidden_act": "gelu"}, "only silu"),
        ("qwen3_next", {"linear_num_key_heads": 3}, "4 value heads are no multiple of 3"),
        ("nemotron_h", {"moe_latent_size": 32}, "moe_latent_size"),
        ("falcon_h1", {"attention_bias": True}, "attention_in_multiplier"),
        ("falcon_h1", {"mamba_proj_bias": True}, "ssm_in_multiplier"),
        ("falcon_h1", {"ssm_multipliers": [1.0]}, "ssm_multipliers must be 5 numbers"),
        ("bamba", {"mamba_n_heads": 7, "mamba_d_head": "auto"}, "cut into 7 state heads"),
        ("mamba2", {"time_step_limit": 3}, "time_step_limit must be two numbers"),
        ("jamba", {"num_experts_per_tok": 5}, "num_experts_per_tok=5 of 4 experts"),
        ("lfm2_moe", {"conv_L_cache": None}, "layers of model_type 'lfm2_moe' are not"),
    ],
)
def test_refused_by_name(family: str, changes: Config, word: str) -> None:
    with pytest.raises(ModelError, match=word):
        spec_of(config_of(family, **changes))


JUNK: list[Any] = ["x", [None], {}, -1, None]


@pytest.mark.parametrize("family", HYBRIDS)
def test_junk_in_any_field_is_a_model_error_or_read(family: str) -> None:
    config = config_of(family)
    for field in config.keys() - {"model_type"}:
        for junk in JUNK:
            with contextlib.suppress(ModelError):
                spec = spec_of(config | {field: junk})
                assert all(min(param.shape) > 0 for param in spec.params()), (field, junk)
