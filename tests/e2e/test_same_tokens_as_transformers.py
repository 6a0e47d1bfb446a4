"""Greedy tokens equal Hugging Face Transformers', however the work was cut, cached or preempted."""

from __future__ import annotations

import random
from itertools import count

import pytest
import torch
from tiny_models import DENSE, tiny_model

from octavo import LLM, SamplingParams
from octavo.models.memory import kv_bytes_for

VOCAB = 512
OUTPUT = 40
GREEDY = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True)


def greedy(model, prompt: list[int], length: int) -> list[int]:
    """The oracle: no cache, no batch, the whole sequence again for every token."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(length):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.fixture(params=["native", "torch"])
def impl(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=DENSE)
def case(request, tmp_path_factory):
    """(folder, prompts, the tokens that Transformers generates)"""
    folder = tmp_path_factory.mktemp(request.param)
    model = tiny_model(folder, request.param)
    rng = random.Random(request.param)
    prompts = [[rng.randrange(VOCAB) for _ in range(n)] for n in (1, 7, 16, 33, 48, 61)]
    return folder, prompts, [greedy(model, p, OUTPUT) for p in prompts]


def load(folder, **options):
    settings = {"dtype": "float32", "kv_memory": "4MiB", "skip_tokenizer_init": True, "threads": 1}
    return LLM(str(folder), **(settings | options))


def tokens(outputs):
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("chunk", [None, 1, 7, 16])
def test_in_chunks_warm_and_cold(case, impl, chunk):
    folder, prompts, expected = case
    limits = {"max_num_seqs": chunk, "max_num_batched_tokens": chunk} if chunk else {}
    llm = load(folder, model_impl=impl, **limits)
    cold = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert tokens(cold) == expected
    warm = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert tokens(warm) == expected
    assert [o.num_cached_tokens for o in warm] == [len(p) - 1 for p in prompts]


@pytest.mark.parametrize("impl,block_size", [("torch", 5), ("native", 48)])
def test_without_prefix_caching_and_with_odd_blocks(case, impl, block_size):
    folder, prompts, expected = case
    llm = load(folder, model_impl=impl, prefix_caching=False, block_size=block_size)
    for _ in range(2):
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        assert tokens(outputs) == expected
        assert not any(o.num_cached_tokens for o in outputs)


def test_when_every_request_is_preempted_again_and_again(case, impl):
    """And urgent neighbours fill the pool meanwhile, so that nothing of it is found again."""
    folder, prompts, expected = case
    llm = load(
        folder, model_impl=impl, kv_memory=blocks(folder, 9), max_model_len=144, policy="priority"
    )
    for i, prompt in enumerate(prompts):
        before = llm.stats
        assert with_urgent_neighbours(llm, prompt, f"r{i}") == expected[i]
        assert llm.stats.preemptions_total >= before.preemptions_total + 5
        more = llm.stats.computed_tokens_total - before.computed_tokens_total
        assert more > 5 * 128 + 5 * len(prompt)
        assert llm.stats.kv_blocks_used == 0


def with_urgent_neighbours(llm, prompt: list[int], name: str) -> list[int]:
    """Tokens of `prompt`, while every sixth step it gives way to somebody urgent."""
    engine, made = llm._local.engine, llm._door.request
    scheduler = engine._scheduler
    urgent = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
    rng, tokens = random.Random(name), []
    engine.add(made(prompt, GREEDY, request_id=name, priority=1))
    for step in count():
        if not engine.has_work:
            return tokens
        running = [s for s in scheduler._roster.running if s.request.request_id == name]
        if step % 6 == 3 and running:
            scheduler._preempt(running[0])
            everything = [rng.randrange(VOCAB) for _ in range(140)]
            engine.add(made(everything, urgent, request_id=f"urgent {step}"))
        for delta in engine.step():
            tokens += delta.token_ids if delta.request_id == name else []
    raise AssertionError("unreachable")


def blocks(folder, number):
    """KV memory of exactly `number` usable blocks in each group."""
    return str(kv_bytes_for(load(folder).info.layout.groups, 16, 16 * number))
