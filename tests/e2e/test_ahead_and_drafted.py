"""Drafts, and steps planned ahead, change nothing in an answer: tokens and logprobs bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tiny_models import tiny_model

from octavo.base.sampling_params import SamplingParams
from octavo.llm import LLM

WAYS: dict[str, dict[str, Any]] = {
    "ngram": {"speculation": "ngram"},
    "suffix": {"speculation": "suffix", "num_drafts": 3},
    "ahead": {"async_scheduling": True},
    "both": {"speculation": "ngram", "num_drafts": 5, "async_scheduling": True},
}


LITTLE = {"qwen3": "160KiB", "gemma3": "288KiB"}  # memory for one of 120 tokens, and little more


@pytest.fixture(scope="module", params=sorted(LITTLE))
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp(family)
    tiny_model(path, family)
    return str(path)


@pytest.fixture(scope="module")
def plain(folder) -> Callable[[int], list[Any]]:
    """Answers without any of it."""
    llm = load(folder)
    return cache(lambda count: answers(llm, requests(count)))


def load(folder: str, **options: Any) -> LLM:
    options = {"kv_memory": "4MiB", "max_model_len": 256, **options}
    return LLM(folder, skip_tokenizer_init=True, dtype="float32", **options)


def requests(count: int) -> list[tuple[list[int], SamplingParams]]:
    """Many of them repeat themselves, as few tokens are allowed or nothing is left to chance."""
    rng = random.Random(count)
    made = []
    for seed in range(count):
        phrase = [rng.randrange(3, 500) for _ in range(rng.randint(1, 12))]
        prompt = (phrase * 9)[: rng.randint(1, 60)]
        params = SamplingParams(
            n=rng.choice([1, 1, 1, 3]),
            seed=seed,
            temperature=rng.choice([0.0, 0.0, 0.2, 1.0]),
            top_p=rng.choice([1.0, 0.9]),
            top_k=rng.choice([0, 0, 5]),
            min_p=rng.choice([0.0, 0.1]),
            presence_penalty=rng.choice([0.0, 0.0, 0.5]),
            repetition_penalty=rng.choice([1.0, 1.0, 1.2]),
            max_tokens=rng.randint(1, 50),
            min_tokens=rng.choice([0, 1]),
            logprobs=rng.choice([None, 0, 3]),
            allowed_token_ids=rng.choice([None, phrase]),
            stop_token_ids=[rng.randrange(500) for _ in range(rng.choice([0, 20]))],
            ignore_eos=rng.random() < 0.5,
            prompt_logprobs=rng.choice([None, None, 2]),
        )
        made.append((prompt, params))
    return made


def answers(llm: LLM, asked: list[tuple[list[int], SamplingParams]]) -> list[Any]:
    prompts, params = zip(*asked, strict=True)
    outputs = llm.generate(list(prompts), list(params), use_tqdm=False)
    return [
        [
            output.prompt_logprobs,
            [(c.token_ids, c.logprobs, c.finish_reason, c.stop_reason) for c in output.outputs],
        ]
        for output in outputs
    ]


def check_blocks_are_free(llm: LLM) -> None:
    assert llm.stats.kv_blocks_used == 0


@pytest.mark.parametrize("way", sorted(WAYS))
def test_answers_are_the_same(folder, plain, way):
    asked = requests(200)[: 200 if way in ("ngram", "both") else 50]
    llm = load(folder, **WAYS[way])
    assert answers(llm, asked) == plain(200)[: len(asked)]
    assert answers(llm, asked[:30]) == plain(200)[:30]  # warm
    check_blocks_are_free(llm)
    if "speculation" in WAYS[way]:
        assert llm.stats.accepted_tokens_total > 50
        assert llm.stats.draft_tokens_total > llm.stats.accepted_tokens_total


@pytest.mark.parametrize("way", sorted(WAYS))
def test_answers_are_the_same_where_memory_is_short(folder, family, plain, way):
    limits = {"kv_memory": LITTLE[family], "max_model_len": 120, "max_num_seqs": 12}
    llm = load(folder, **limits, **WAYS[way])
    assert answers(llm, requests(30)) == plain(30)
    assert llm.stats.preemptions_total > 0
    check_blocks_are_free(llm)


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("budget", [4, 17])
def test_answers_are_the_same_in_small_steps(folder, plain, way, budget):
    llm = load(folder, max_num_seqs=4, max_num_batched_tokens=budget, **WAYS[way])
    assert answers(llm, requests(30)) == plain(30)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_an_answer_ends_where_the_context_does(folder, way):
    """In the middle of drafts that are right: one token alone is allowed."""
    llm = load(folder, max_model_len=50, **WAYS[way])
    prompts = [[7] * length for length in range(25, 50)]
    params = SamplingParams(allowed_token_ids=[7], max_tokens=None, ignore_eos=True, logprobs=0)
    for prompt, output in zip(prompts, llm.generate(prompts, params, use_tqdm=False), strict=True):
        [answer] = output.outputs
        assert answer.token_ids == [7] * (50 - len(prompt))
        assert len(answer.logprobs) == len(answer.token_ids)
        assert answer.finish_reason == "length"
    check_blocks_are_free(llm)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_an_answer_ends_at_a_stop_among_accepted_drafts(folder, way):
    llm = load(folder, **WAYS[way])
    phrase = [11, 12, 13, 14, 15, 16]
    asked = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, logprobs=0)
    [free] = llm.generate([phrase * 6], asked, use_tqdm=False)
    tokens = free.outputs[0].token_ids
    for end in sorted({tokens.index(token) for token in tokens})[:12]:
        params = SamplingParams(
            temperature=0, max_tokens=40, ignore_eos=True, logprobs=0, stop_token_ids=[tokens[end]]
        )
        [stopped] = llm.generate([phrase * 6], params, use_tqdm=False)
        [answer] = stopped.outputs
        assert answer.token_ids == tokens[: end + 1]
        assert answer.logprobs == free.outputs[0].logprobs[: end + 1]
        assert (answer.finish_reason, answer.stop_reason) == ("stop", tokens[end])
