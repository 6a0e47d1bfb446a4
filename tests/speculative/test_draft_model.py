"""A smaller model drafts: it guesses what it would say itself, and answers stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drafting import always, answers, close_to_best, listen, load, some_requests
from tiny_models import tiny_model

from octavo import SamplingParams
from octavo.base.errors import ConfigError
from octavo.speculative.model import ModelProposer

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
WAYS: dict[str, dict[str, Any]] = {
    "plainly": {},
    "ahead": {"async_scheduling": True},
    "in small steps": {"max_num_seqs": 4, "max_num_batched_tokens": 17},
    "where memory is short": {"max_model_len": 110, "max_num_seqs": 8},
}
LITTLE = {"qwen3": "330KiB", "gemma3": "700KiB"}  # memory for one of 110 tokens, and little more


@pytest.fixture(autouse=True)
def _always(monkeypatch):
    always(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Gives the folder of a family's model."""
    made: dict[tuple[str, int | None], Path] = {}

    def of(family: str, layers: int | None = None) -> Path:
        if (family, layers) not in made:
            path = made[family, layers] = tmp_path_factory.mktemp(family)
            tiny_model(path, family, **({} if layers is None else {"num_hidden_layers": layers}))
        return made[family, layers]

    return of


def drafting(target: Path, draft: Path, impl: str = "native", **options: Any):
    return load(target, impl, speculation="draft", draft_model=str(draft), **options)


def memory(way: str, target: str) -> dict[str, str]:
    return {"kv_memory": LITTLE[target]} if way == "where memory is short" else {}


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize(("target", "draft"), [("qwen3", "llama"), ("gemma3", "gemma3")])
def test_answers_are_the_same(folder, target, draft, way):
    asked = some_requests(24)
    plain = answers(load(folder(target)), asked)
    llm = drafting(folder(target), folder(draft), **memory(way, target), **WAYS[way])
    assert answers(llm, asked) == plain
    assert answers(llm, asked) == plain, "what was found again has its KV, and the draft's"
    assert llm.stats.draft_tokens_total > 50
    assert llm.stats.kv_blocks_used == 0
    if way == "where memory is short":
        assert llm.stats.preemptions_total > 0


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_model_that_drafts_for_itself_is_always_right(folder, way):
    prompts = [prompt for prompt, _ in some_requests(20)]
    llm = drafting(folder("qwen3"), folder("qwen3"), **memory(way, "qwen3"), **WAYS[way])
    for _ in range(2):
        llm.generate(prompts, GREEDY, use_tqdm=False)
    assert llm.stats.draft_tokens_total == llm.stats.accepted_tokens_total > 20


@pytest.mark.parametrize("impl", ["native", "torch"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_guesses_are_what_the_draft_model_itself_says(folder, tmp_path, family, impl, monkeypatch):
    """As Transformers computes it, without any cache."""
    oracle = tiny_model(tmp_path, family)
    said = listen(monkeypatch, ModelProposer)
    llm = drafting(folder("qwen3"), tmp_path, impl, num_drafts=3)
    prompts = [prompt for prompt, _ in some_requests(6)]
    llm.generate(prompts, GREEDY, use_tqdm=False)
    for known, guesses in said:
        with torch.no_grad():
            logits = oracle(torch.tensor([[*known, *guesses[:-1]]])).logits[0].numpy()
        for guess, of in zip(guesses, logits[len(known) - 1 :], strict=True):
            assert close_to_best(of, guess)
    assert sum(len(guesses) for _, guesses in said) > 30


def test_kv_of_rejected_guesses_and_of_blocks_found_again_is_that_of_the_tokens(
    folder, monkeypatch
):
    """A cold engine and a warm one, whose steps are cut otherwise, guess the same."""
    guesses: list[dict[tuple[int, ...], int]] = []
    said = listen(monkeypatch, ModelProposer)
    prompts = [prompt for prompt, _ in some_requests(8)]
    llm = drafting(folder("qwen3"), folder("llama"), max_num_batched_tokens=70)
    for _ in range(3):
        said.clear()
        llm.generate(prompts, GREEDY, use_tqdm=False)
        guesses.append({tuple(known): first for known, [first, *_] in said})
    for other in guesses[1:]:
        both = guesses[0].keys() & other.keys()
        assert len(both) > 10
        assert {k: guesses[0][k] for k in both} == {k: other[k] for k in both}


def test_weights_and_kv_of_both_are_planned_and_shown(folder):
    alone = load(folder("qwen3"), kv_memory="1MiB").info
    both = drafting(folder("qwen3"), folder("llama"), kv_memory="1MiB").info
    [page] = {pool.page_bytes for pool in alone.layout.pools}
    draft = load(folder("llama"), kv_memory="1MiB").info
    [more] = {pool.page_bytes for pool in draft.layout.pools}
    assert [pool.page_bytes for pool in both.layout.pools] == [page + more]
    assert [group.layers for group in both.layout.groups] == [(0, 1, 2, 3, 4)]
    assert "draft weights" in both.table
    assert "draft weights" not in alone.table


def test_new_weights_and_sleep_go_on_with_the_draft_model(folder):
    target = folder("llama")
    model = tiny_model(target.parent / "again", "llama")
    prompts = [prompt for prompt, _ in some_requests(4)]
    llm = drafting(target, target)
    first = [o.outputs[0].token_ids for o in llm.generate(prompts, GREEDY, use_tqdm=False)]
    llm.sleep()
    assert llm._local.engine._executor._worker._proposer is None, "its weights are freed too"
    llm.wake_up()
    state = {name: tensor + 0.01 for name, tensor in model.state_dict().items()}
    llm.update_weights({name: tensor.numpy() for name, tensor in state.items()})
    changed = [o.outputs[0].token_ids for o in llm.generate(prompts, GREEDY, use_tqdm=False)]
    accepted = llm.stats.accepted_tokens_total
    llm.update_weights({name: t.numpy() for name, t in model.state_dict().items()})
    again = [o.outputs[0].token_ids for o in llm.generate(prompts, GREEDY, use_tqdm=False)]
    assert again == first != changed
    assert llm.stats.accepted_tokens_total > accepted


@pytest.mark.parametrize(
    ("draft", "told"),
    [
        ({"family": "llama", "vocab_size": 400}, "it must know all 512 tokens of the model"),
        ({"family": "lfm2"}, "not for models with recurrent states"),
    ],
)
def test_a_draft_model_that_does_not_go_with_the_model_is_refused(folder, tmp_path, draft, told):
    tiny_model(tmp_path, **draft)
    with pytest.raises(ConfigError, match=f"draft_model .*: .*{told}"):
        drafting(folder("qwen3"), tmp_path)
    with pytest.raises(ConfigError, match="draft_model nowhere/at/all: "):
        load(folder("qwen3"), speculation="draft", draft_model="nowhere/at/all")


def test_models_that_transformers_computes_have_no_draft_model(folder):
    with pytest.raises(ConfigError, match="speculation draft is not for models that Transformers"):
        drafting(folder("llama"), folder("llama"), "transformers")


def test_a_larger_vocabulary_is_cut(folder, tmp_path, monkeypatch):
    tiny_model(tmp_path, "llama", vocab_size=2000)
    said = listen(monkeypatch, ModelProposer)
    llm = drafting(folder("qwen3"), tmp_path)
    llm.generate([prompt for prompt, _ in some_requests(4)], GREEDY, use_tqdm=False)
    guesses = np.concatenate([guesses for _, guesses in said])
    assert len(guesses) > 20
    assert guesses.max() < 512
