"""Models that Transformers computes answer as Transformers does, however they are scheduled."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from pathlib import Path

import pytest
import torch
from fallback_models import OUTPUT, greedy, load, prompts, saved, tiny
from safetensors.torch import save_file
from tiny_int8 import tiny_int8

from octavo import SamplingParams
from octavo.base.errors import ConfigError, ModelError
from octavo.models.memory import kv_bytes_for

GREEDY = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True)
TYPES = ("gemma2", "gpt_oss", "llama4_text", "phi3", "olmoe", "deepseek_v3", "gpt2", "gemma3n_text")
CUSTOM = Path(__file__).parent / "custom_code"


@pytest.fixture(scope="module", params=TYPES)
def case(request, tmp_path_factory):
    """(type, folder, prompts, the tokens that Transformers generates)"""
    folder = tmp_path_factory.mktemp(request.param)
    model = tiny(folder, request.param)
    asked = prompts()
    return request.param, folder, asked, [greedy(model, p) for p in asked]


def tokens(llm, asked):
    return [o.outputs[0].token_ids for o in llm.generate(asked, GREEDY, use_tqdm=False)]


@pytest.mark.parametrize("chunk", [None, 5])
def test_packed_in_chunks_warm_and_cold(case, chunk):
    _, folder, asked, expected = case
    llm = load(
        folder, **({"max_num_batched_tokens": chunk, "max_num_seqs": chunk} if chunk else {})
    )
    assert tokens(llm, asked) == expected
    again = llm.generate(asked, GREEDY, use_tqdm=False)
    assert [o.outputs[0].token_ids for o in again] == expected
    assert [o.num_cached_tokens for o in again] == [len(p) - 1 for p in asked]


def test_preempted(case):
    _, folder, asked, expected = case
    groups = load(folder).info.layout.groups
    few = str(kv_bytes_for(groups, 16, 80, sequences=2))
    llm = load(folder, kv_memory=few, max_model_len=80, prefix_caching=False)
    assert tokens(llm, asked) == expected
    assert llm.stats.preemptions_total
    assert llm.stats.kv_blocks_used == 0


def kv_bytes(folder) -> int:
    return sum(group.bytes_per_token for group in load(folder).info.layout.groups)


def test_latent_attention_keeps_the_expanded_keys_that_calls_bring(tmp_path):
    layers = tiny(tmp_path, "deepseek_v3").config.num_hidden_layers
    assert kv_bytes(tmp_path) == layers * 4 * (24 + 16) * 4  # heads, key and value, float32


def test_layers_that_attend_over_another_ones_keys_keep_none(tmp_path):
    config = tiny(tmp_path, "gemma3n_text").config
    assert config.num_kv_shared_layers
    layers = config.num_hidden_layers - config.num_kv_shared_layers
    assert kv_bytes(tmp_path) == layers * 2 * (16 + 16) * 4


def test_weights_take_what_was_said(tmp_path):
    model = tiny(tmp_path, "olmoe")
    size = sum(p.nbytes for p in model.parameters())
    llm = load(tmp_path)
    held = llm._local.engine._executor._worker._runner._model._model
    assert sum(p.nbytes for p in held.parameters()) == size
    assert f"{sum(p.numel() for p in model.parameters()):,} parameters" in llm.info.table


def test_two_engines_in_one_process_do_not_know_of_each_other(tmp_path):
    models = {name: tiny(tmp_path / name, name) for name in ("gemma2", "gpt2")}
    engines = {name: load(tmp_path / name) for name in models}
    asked = prompts((9, 20))
    for _ in range(2):
        for name, model in models.items():
            assert tokens(engines[name], asked) == [greedy(model, p) for p in asked]


def test_weights_are_replaced_in_place(tmp_path):
    model = tiny(tmp_path, "olmoe")
    llm, asked = load(tmp_path), prompts((12,))
    before = tokens(llm, asked)
    with torch.no_grad():
        model.lm_head.weight.add_(torch.randn(model.lm_head.weight.shape) * 0.3)
    llm.update_weights({"lm_head.weight": model.lm_head.weight})
    assert tokens(llm, asked) == [greedy(model, asked[0])] != before


def test_auto_takes_transformers_where_there_is_no_family(tmp_path, caplog):
    model = tiny(tmp_path, "persimmon")
    asked = prompts((10,))
    llm = load(tmp_path, model_impl="auto")
    assert llm.info.runner.startswith("Transformers")
    assert tokens(llm, asked) == [greedy(model, asked[0])]


def test_the_text_decoder_of_a_model_that_also_sees(tmp_path):
    model, asked = tiny(tmp_path, "gemma3_text"), prompts((20,))
    names = {name: name.replace("model.", "language_model.model.") for name in model.state_dict()}
    seeing = {names[name]: x.contiguous() for name, x in model.state_dict().items()}
    del seeing["lm_head.weight"]  # it is the embedding
    seeing["vision_tower.patch.weight"] = torch.zeros(3, 3)
    save_file(seeing, tmp_path / "model.safetensors")
    text = json.loads((tmp_path / "config.json").read_text())
    whole = {"model_type": "gemma3", "text_config": text, "dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    assert tokens(load(tmp_path), asked) == [greedy(model, asked[0])]


def test_int8_is_dequantised(tmp_path):
    model, asked = tiny(tmp_path, "persimmon"), prompts((20,))
    tiny_int8(tmp_path, model)
    assert tokens(load(tmp_path), asked) == [greedy(model, asked[0])]


def test_a_tensor_that_nobody_reads_is_named(tmp_path, caplog):
    model = tiny(tmp_path, "olmoe")
    state = {name: x.contiguous() for name, x in model.state_dict().items()}
    save_file({**state, "model.odd": torch.zeros(2)}, tmp_path / "model.safetensors")
    with caplog.at_level(logging.WARNING, "octavo.fallback"):
        load(tmp_path)
    assert "does not read 1 tensor: model.odd" in caplog.text


def test_random_weights_without_a_checkpoint(tmp_path):
    tiny(tmp_path, "olmoe")
    (tmp_path / "model.safetensors").unlink()
    [output] = load(tmp_path, load_format="dummy").generate(prompts((5,)), GREEDY, use_tqdm=False)
    assert len(output.outputs[0].token_ids) == OUTPUT


def test_a_checkpoint_that_lacks_tensors_is_refused_before_it_is_read(tmp_path):
    tiny(tmp_path, "olmoe")
    config = json.loads((tmp_path / "config.json").read_text())
    config["num_hidden_layers"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"lacks \d+ tensors: model.layers.2"):
        load(tmp_path)


def test_misshapen_tensors_are_named_in_one_line(tmp_path, capfd):
    tiny(tmp_path, "persimmon", hidden_size=32)
    config = json.loads((tmp_path / "config.json").read_text())
    config["vocab_size"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError) as caught:
        load(tmp_path)
    assert str(caught.value) == (
        "PersimmonForCausalLM cannot be served: the checkpoint has misshapen 2 tensors: "
        "lm_head.weight [128, 32] instead of [129, 32], "
        "model.embed_tokens.weight [128, 32] instead of [129, 32]"
    )
    assert "LOAD REPORT" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "model_type,reason",
    [
        ("mamba", "linear_attention keep more than the keys and values"),
        ("bloom", "does not call Transformers' attention interface"),
        ("bart", "an encoder and a decoder"),
        ("roberta", "is_decoder"),
    ],
)
def test_what_cannot_be_paged_is_refused_and_says_why(tmp_path, model_type, reason):
    from transformers import CONFIG_MAPPING

    CONFIG_MAPPING[model_type]().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=reason):
        load(tmp_path, load_format="dummy")


def test_an_unknown_type_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    both = r"^'nonesuch' is no .*; Transformers .* knows no model of type 'nonesuch'$"
    with pytest.raises(ModelError, match=both):
        load(tmp_path, load_format="dummy", model_impl="auto")


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """A folder with its own code, and its model."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(CUSTOM))
    from modeling_odd import OddConfig, OddForCausalLM

    folder = tmp_path / "odd"
    model = saved(folder, OddForCausalLM._from_config(OddConfig(), dtype=torch.float32))
    shutil.copy(CUSTOM / "modeling_odd.py", folder)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {
        "AutoConfig": "modeling_odd.OddConfig",
        "AutoModelForCausalLM": "modeling_odd.OddForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps(config))
    yield folder, model
    sys.modules.pop("modeling_odd", None)


def test_code_of_a_model_does_not_run_unless_it_is_trusted(odd):
    folder, _ = odd
    (folder / "modeling_odd.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ModelError, match="--trust-remote-code"):
        load(folder)


def test_a_config_without_a_vocabulary_is_refused_by_name(odd):
    folder, _ = odd
    for file in (folder / "modeling_odd.py", folder / "config.json"):
        file.write_text(file.read_text().replace("vocab_size", "n_words", 1))
    with pytest.raises(ModelError, match="config: vocab_size is missing"):
        load(folder, trust_remote_code=True)


def test_code_that_is_trusted_runs_and_is_named(odd, caplog):
    folder, model = odd
    asked = prompts((4, 19))
    with caplog.at_level(logging.WARNING, "octavo.fallback"):
        llm = load(folder, trust_remote_code=True)
    assert "modeling_odd.py" in caplog.text
    assert tokens(llm, asked) == [greedy(model, p) for p in asked]
