"""The self-test lets pass what is right, and notices each thing that paged attention could lose."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fallback_models import greedy, load, prompts, saved
from transformers import CONFIG_MAPPING, Phi3ForCausalLM

from octavo import SamplingParams
from octavo.attention.reference import ReferenceAttention
from octavo.base.errors import ModelError
from octavo.fallback import model as fallback_model
from octavo.fallback import packed, shapes
from octavo.fallback.classes import decoder_class
from octavo.fallback.selftest import self_test

ORIGINAL = "original_max_position_embeddings"
LONG = {"rope_type": "longrope"}
DIFFERS = "logits change where sequences share a step"


def asks_past(model_type: str) -> bool:
    return self_test(*decoder_class(CONFIG_MAPPING[model_type]()))


def test_only_who_counts_positions_from_a_cache_is_told_the_past():
    assert not asks_past("llama")
    assert asks_past("llama4_text")


@pytest.mark.parametrize("model_type", ["gemma2", "llama4_text"])
def test_a_lost_window_or_chunk_is_noticed(monkeypatch, model_type):
    monkeypatch.setattr(shapes, "_reach", lambda call, config: (None, None))
    with pytest.raises(ModelError, match=DIFFERS):
        asks_past(model_type)


def test_lost_sinks_are_noticed(monkeypatch):
    run = ReferenceAttention.run
    monkeypatch.setattr(ReferenceAttention, "run", lambda *args: run(*args[:-1], None))
    with pytest.raises(ModelError, match=DIFFERS):
        asks_past("gpt_oss")


@pytest.mark.parametrize("model_type", ["gpt2", "opt"])
def test_shifted_positions_are_noticed(monkeypatch, model_type):
    monkeypatch.setattr(packed, "position_offset", lambda model: 1)
    with pytest.raises(ModelError, match=DIFFERS):
        asks_past(model_type)


def test_a_mask_that_nobody_would_look_at_is_refused():
    with pytest.raises(ModelError, match="a mask of its own"):
        asks_past("doge")


def test_longrope_is_served_up_to_where_its_factors_would_change(tmp_path):
    config = CONFIG_MAPPING["phi3"](
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        max_position_embeddings=256,
        original_max_position_embeddings=64,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0 + 0.1 * i for i in range(8)],
            "long_factor": [2.0 + 0.5 * i for i in range(8)],
        },
    )
    model = saved(tmp_path, Phi3ForCausalLM._from_config(config))
    llm, asked = load(tmp_path), prompts((5, 30))
    assert llm.info.max_model_len == 64
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    found = [o.outputs[0].token_ids for o in llm.generate(asked, params, use_tqdm=False)]
    assert found == [greedy(model, p) for p in asked]


@pytest.mark.parametrize("said,longest", [({}, 256), (LONG, 200), ({**LONG, ORIGINAL: 64}, 64)])
@pytest.mark.parametrize("nested", [False, True])
def test_the_length_where_long_factors_begin_is_found(said, longest, nested):
    rope = {"rope_type": "default", "rope_theta": 1e4, **said}
    parameters = {"full_attention": rope, "sliding_attention": {"rope_type": "default"}}
    config = SimpleNamespace(
        max_position_embeddings=256,
        original_max_position_embeddings=200,
        rope_parameters=parameters if nested else rope,
    )
    assert fallback_model._longest(config) == longest
