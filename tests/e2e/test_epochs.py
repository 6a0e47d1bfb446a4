"""Weights that change under running requests: no KV of others is ever found."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from test_kv_memory import load, some_tokens
from tiny_models import tiny_model

from octavo import SamplingParams
from octavo.base.errors import EngineError, ModelError

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=1)


@pytest.fixture(params=["native", "torch"])
def impl(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of two models of one shape, and the state dict of each."""
    folders, states = [], []
    for name in "ab":
        folder = tmp_path_factory.mktemp(name)
        model = tiny_model(folder, "llama")
        if name == "b":
            with torch.no_grad():
                for number, parameter in enumerate(model.parameters()):
                    generator = torch.Generator().manual_seed(number)
                    parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
            folder = tmp_path_factory.mktemp(name)
            model.save_pretrained(folder)
        folders.append(folder)
        states.append(model.state_dict())
    return folders, states


def tokens(llm, *prompts):
    return [o.outputs[0].token_ids for o in llm.generate(list(prompts), PARAMS, use_tqdm=False)]


def test_an_update_gives_what_the_other_model_gives_and_going_back_hits_again(models, impl):
    folders, (a, b) = models
    prompts = [some_tokens(random.Random(i), 40) for i in range(3)]
    expected = [tokens(load(folder, impl), *prompts) for folder in folders]
    assert expected[0] != expected[1]
    llm, other = load(folders[0], impl), load(folders[1], impl)
    first = llm.epoch
    assert tokens(llm, *prompts) == expected[0]
    assert llm.update_weights(b) == other.epoch != first
    [cold] = llm.generate([prompts[0]], PARAMS, use_tqdm=False)
    assert cold.num_cached_tokens == 0
    assert cold.miss == "epoch"
    assert cold.outputs[0].epochs == [(other.epoch, 12)]
    assert tokens(llm, *prompts) == expected[1]
    assert llm.update_weights(a) == first
    [warm] = llm.generate([prompts[0]], PARAMS, use_tqdm=False)
    assert warm.num_cached_tokens == 39
    assert tokens(llm, *prompts) == expected[0]


def test_some_tensors_from_a_file(models, impl, tmp_path):
    folders, (_, b) = models
    llm = load(folders[0], impl)
    some = {name: t.numpy() for name, t in b.items() if ".1." in name}
    save_file(some, tmp_path / "some.safetensors")
    changed = llm.update_weights(tmp_path / "some.safetensors")
    rest = {name: t.numpy() for name, t in b.items() if name not in some}
    assert llm.update_weights(rest) != changed
    prompt = some_tokens(random.Random(1), 30)
    assert tokens(llm, prompt) == tokens(load(folders[1], impl), prompt)


@pytest.mark.parametrize("in_flight", ["finish", "recompute", "abort"])
def test_what_becomes_of_requests_in_flight(models, impl, in_flight):
    folders, (_, b) = models
    llm, other = load(folders[0], impl), load(folders[1], impl)
    prompt = some_tokens(random.Random(2), 40)
    [alone] = tokens(llm, prompt)
    old, engine = llm.epoch, llm._local.engine
    stream = llm.stream(prompt, PARAMS)
    pieces = [next(stream) for _ in range(5)]
    engine.add(llm._door.request([5, *prompt], PARAMS, request_id="newcomer"))
    new = llm.update_weights(b, in_flight)
    pieces += list(stream)
    found = [token for piece in pieces for token in piece.token_ids]
    epochs = [piece.epoch for piece in pieces if piece.token_ids]
    if in_flight == "finish":
        assert (found, epochs) == (alone, [old] * 12)
    elif in_flight == "abort":
        assert (found, pieces[-1].finish_reason) == (alone[:5], "abort")
    else:
        [rest] = other.generate(
            [prompt + alone[:5]],
            SamplingParams(temperature=0, max_tokens=7, ignore_eos=True),
            use_tqdm=False,
        )
        assert found == alone[:5] + rest.outputs[0].token_ids
        assert epochs == [old] * 5 + [new] * 7
    while engine.has_work:
        deltas = engine.step()
        assert all(delta.epoch == new for delta in deltas if delta.request_id == "newcomer")
    assert llm.stats.kv_blocks_used == 0


def test_no_hit_across_epochs_in_random_order(models):
    folders, states = models
    llm = load(folders[0], "native")
    expected: dict[tuple[int, int], list[int]] = {}
    rng, current, hits = random.Random(3), 0, 0
    prompts = [some_tokens(random.Random(i), 36) for i in range(4)]
    for _ in range(40):
        if rng.random() < 0.4:
            current = rng.randrange(2)
            llm.update_weights(states[current])
        pick = rng.randrange(4)
        [output] = llm.generate([prompts[pick]], PARAMS, use_tqdm=False)
        seen = (current, pick) in expected
        assert expected.setdefault((current, pick), output.outputs[0].token_ids) == (
            output.outputs[0].token_ids
        )
        assert output.num_cached_tokens == (35 if seen else 0)
        hits += seen
    assert hits > 10


def test_sleep_frees_and_wake_up_gives_the_same(models, impl):
    folders, (_, b) = models
    llm = load(folders[0], impl)
    llm.update_weights(b)
    prompt = some_tokens(random.Random(4), 30)
    [before] = tokens(llm, prompt)
    llm.sleep()
    assert not hasattr(llm._local.engine._executor._worker, "_runner")
    with pytest.raises(EngineError, match="sleeps"):
        tokens(llm, prompt)
    llm.wake_up()
    [output] = llm.generate([prompt], PARAMS, use_tqdm=False)
    assert output.num_cached_tokens == 0
    assert output.outputs[0].token_ids == before


def test_reset_is_true_only_if_it_happened(models, impl):
    llm = load(models[0][0], impl)
    prompt = some_tokens(random.Random(5), 40)
    [expected] = tokens(llm, prompt)
    stream = llm.stream(prompt, PARAMS)
    pieces = [next(stream)]
    assert llm.reset_prefix_cache() is False
    pieces += list(stream)
    assert [token for piece in pieces for token in piece.token_ids] == expected
    assert llm.reset_prefix_cache() is True
    [output] = llm.generate([prompt], PARAMS, use_tqdm=False)
    assert (output.num_cached_tokens, output.miss) == (0, "evicted")


def test_an_update_that_does_not_fit_changes_nothing(models, impl):
    llm = load(models[0][0], impl)
    prompt = some_tokens(random.Random(6), 40)
    [expected] = tokens(llm, prompt)
    epoch = llm.epoch
    name = "model.layers.0.mlp.up_proj.weight"
    for wrong, said in (
        ({"model.layers.9.x": np.zeros(3, np.float32)}, "no tensor model.layers.9.x"),
        ({name: np.zeros((3, 3), np.float32)}, r"is \[3, 3\] instead of"),
        ({name: np.zeros((128, 64), np.int32)}, "must be an array or tensor of"),
        ({name: [[0.0]]}, "must be an array or tensor of"),
    ):
        with pytest.raises(ModelError, match=said):
            llm.update_weights(wrong)
    assert llm.epoch == epoch
    [output] = llm.generate([prompt], PARAMS, use_tqdm=False)
    assert output.num_cached_tokens == 39
    assert output.outputs[0].token_ids == expected


def test_an_update_that_fails_leaves_the_weights_before(models, impl, monkeypatch):
    folders, (_, b) = models
    llm = load(folders[0], impl)
    prompt = some_tokens(random.Random(7), 40)
    [expected] = tokens(llm, prompt)
    runner = llm._local.engine._executor._worker._runner
    other = llm.stream([5, *prompt], PARAMS)
    pieces = [next(other)]
    with monkeypatch.context() as patch:
        patch.setattr(type(runner), "update", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            llm.update_weights(b)
    pieces += list(other)  # what the update brought to its end is not lost
    assert len([t for piece in pieces for t in piece.token_ids]) == 12
    [output] = llm.generate([prompt], PARAMS, use_tqdm=False)
    assert output.num_cached_tokens == 0
    assert output.outputs[0].token_ids == expected


def test_what_is_trained_on_afterwards_changes_nothing(models, impl):
    """Nor does a long row of updates keep what it replaced."""
    folders, (_, b) = models
    llm = load(folders[0], impl)
    mine = {name: tensor.clone() for name, tensor in b.items()}
    for _ in range(3):
        llm.update_weights(mine)
    prompt = some_tokens(random.Random(8), 40)
    [expected] = tokens(llm, prompt)
    for tensor in mine.values():
        tensor.zero_()
    llm.sleep()
    llm.wake_up()
    assert tokens(llm, prompt) == [expected]
    kept = llm._local.engine._weights.checkpoint
    assert not isinstance(kept._base, type(kept))
