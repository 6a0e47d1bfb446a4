"""Rotary frequencies against Transformers, which is the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.base.errors import ModelError
from octavo.models.rope import rope_parameters, rope_spec, scaled_length

THETA = {"rope_theta": 500000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}

CASES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn without original": {"rope_type": "yarn", "factor": 4.0},
    "yarn attention_factor": {**YARN, "attention_factor": 1.25},
    "yarn mscale": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.0},
    "yarn betas": {**YARN, "beta_fast": 16, "beta_slow": 2},
    "yarn truncate": {**YARN, "truncate": False},
    "yarn factor 1": {**YARN, "factor": 1.0},
}


@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("case", CASES)
def test_equals_transformers(case: str, head_dim: int) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = {**THETA, **CASES[case]}
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        max_position_embeddings=8192,
        rope_parameters=rope,
    )
    theirs = LlamaRotaryEmbedding(config)
    ours = rope_spec({"max_position_embeddings": 8192, "rope_parameters": rope}, head_dim)
    # at most one unit in the last place: numpy's and torch's float32 power differ by as much
    np.testing.assert_array_max_ulp(
        np.array(ours.inv_freq, np.float32), theirs.inv_freq.numpy(), maxulp=1
    )
    assert ours.attention_factor == pytest.approx(theirs.attention_scaling, rel=1e-12)
    assert ours.rotary_dim == head_dim


def test_both_styles_say_the_same() -> None:
    old = {"rope_theta": 500000.0, "rope_scaling": {**LLAMA3, "type": "llama3"}}
    new = {"rope_parameters": {**LLAMA3, **THETA}}
    length = {"max_position_embeddings": 131072}
    assert rope_spec({**old, **length}, 128) == rope_spec({**new, **length}, 128)


def test_old_type_key() -> None:
    config = {"rope_scaling": {"type": "linear", "factor": 2.0}}
    assert rope_parameters(config)["rope_type"] == "linear"


def test_freq_factors_divide() -> None:
    config = {"max_position_embeddings": 64}
    plain = np.array(rope_spec(config, 8).inv_freq)
    scaled = rope_spec({**config, "rope_parameters": {"freq_factors": [1.0, 1.0, 2.0, 8.0]}}, 8)
    assert np.array(scaled.inv_freq).tolist() == (plain / [1, 1, 2, 8]).tolist()


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        ({"rope_type": "default"}, 4096),
        ({**LLAMA3}, 4096),
        ({"rope_type": "linear", "factor": 4.0}, 16384),
        ({**YARN}, 16384),
        ({**YARN, "original_max_position_embeddings": 1024}, 4096),  # already in the length
    ],
)
def test_scaled_length(rope: dict[str, Any], length: int) -> None:
    assert scaled_length({"max_position_embeddings": 4096, "rope_scaling": rope}) == length


@pytest.mark.parametrize(
    ("rope", "word"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "dynamic"),
        ({"rope_type": "longrope"}, "short_factor"),
        ({"rope_type": "spiral"}, "spiral"),
        ({"rope_type": "default", "mrope_section": [1, 2]}, "mrope_section"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "yarn", "factor": "big"}, "factor"),
        ({**LLAMA3, "low_freq_factor": None}, "low_freq_factor"),
        ({"rope_type": "default", "partial_rotary_factor": 0.4}, "cannot turn in pairs"),
        ({"full_attention": {"rope_type": "spiral"}}, "spiral"),
        ({"freq_factors": [1.0]}, "rope_freqs.weight"),
    ],
)
def test_refused_by_name(rope: dict[str, Any], word: str) -> None:
    with pytest.raises(ModelError, match=word):
        rope_spec({"max_position_embeddings": 64, "rope_parameters": rope}, 8)
