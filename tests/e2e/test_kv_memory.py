"""Shared, copied, slid and preempted KV gives what a request alone with all memory gives, and no
output ever sees a slot that was not written, or whose content was given up."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from tiny_models import tiny_model

from octavo import LLM, BeamSearchParams, SamplingParams
from octavo.models.memory import kv_bytes_for

VOCAB = 512
MODELS = ("llama", "mistral", "qwen2_mixed")  # full attention, windows, both in one pool


@pytest.fixture(params=["native", "torch"])
def impl(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    """(name, folder, Transformers' model)"""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, tiny_model(folder, request.param)


def load(folder, impl, **options):
    settings = {"dtype": "float32", "kv_memory": "8MiB", "skip_tokenizer_init": True, "threads": 1}
    llm = LLM(str(folder), model_impl=impl, **(settings | options))
    poison(llm)
    return llm


def poison(llm) -> None:
    """Fill every block with NaN at first, and whenever its content can no longer be found: after
    the sources of copies are read, before anything is written."""
    worker, manager = llm._local.engine._executor._worker, llm._local.engine._scheduler._manager
    blanks = [(p, b) for p, pool in enumerate(manager.pools) for b in range(pool.num_blocks)]
    manager.cache.blank = lambda pool, block: blanks.append((pool, block))

    def copy(copies):
        pools = _pages(worker._runner)
        read = [pools[c.pool][c.source].copy() for c in copies]
        for pool, block in blanks:
            pools[pool][block] = 0xFF  # a NaN in every format
        blanks.clear()
        for c, page in zip(copies, read, strict=True):
            pools[c.pool][c.target] = page

    worker._copy = copy


def _pages(runner) -> list[np.ndarray]:
    """uint8 [blocks, bytes] of each pool, views."""
    if hasattr(runner, "_pages"):
        return runner._pages
    return [pool.view(torch.uint8).numpy() for pool in runner.attention.pools]


def small(folder, impl, tokens: int, sequences: int = 1, **options):
    """An engine whose KV memory holds one sequence of so many tokens, or several."""
    chunk = options.get("max_num_batched_tokens", 2048)
    layout = load(folder, impl, kv_dtype=options.get("kv_dtype", "auto")).info.layout
    memory = kv_bytes_for(layout.groups, 16, tokens, sequences=sequences, chunk=min(chunk, tokens))
    return load(folder, impl, kv_memory=str(memory), max_model_len=tokens, **options)


def told(output) -> list[object]:
    """Tokens and logprobs of every answer, to the bit."""
    return [
        (c.token_ids, [[(t, p.logprob) for t, p in at.items()] for at in c.logprobs or []])
        for c in output.outputs
    ]


def equal(ours, alone, impl) -> bool:
    """To the bit; torch's linears differ in the last bits with the number of rows."""
    if impl == "native":
        return told(ours) == told(alone)
    return [c.token_ids for c in ours.outputs] == [c.token_ids for c in alone.outputs]


def some_tokens(rng, count: int) -> list[int]:
    return [rng.randrange(3, VOCAB) for _ in range(count)]


def sampling(rng, **options) -> SamplingParams:
    return SamplingParams(
        seed=rng.randrange(1000), logprobs=3, ignore_eos=True, temperature=0.8, **options
    )


@pytest.mark.parametrize(
    "impl,kv_dtype",
    # Where torch rounds KV, its last bits in linears grow to other tokens.
    [("native", "auto"), ("native", "bfloat16"), ("native", "int8"), ("torch", "auto")],
)
@pytest.mark.parametrize("index", ["hash", "radix"])
def test_answers_in_a_crowd_equal_those_alone(model, impl, index, kv_dtype):
    name, folder, _ = model
    kept = {"prefix_index": index, "kv_dtype": kv_dtype}
    rng = random.Random(name)
    stem = some_tokens(rng, 50)
    prompts = [
        stem[: rng.randrange(1, 50)] + some_tokens(rng, rng.randrange(1, 30)) for _ in range(14)
    ]
    params = [
        sampling(rng, n=rng.choice([1, 1, 2, 4]), max_tokens=rng.randrange(2, 40)) for _ in prompts
    ]
    cold = load(folder, impl, prefix_caching=False, kv_dtype=kv_dtype)
    alone = [cold.generate([p], s, use_tqdm=False)[0] for p, s in zip(prompts, params, strict=True)]
    crowd = small(folder, impl, 144, max_num_seqs=6, max_num_batched_tokens=29, **kept)
    for _ in range(2):
        outputs = crowd.generate(prompts, params, use_tqdm=False)
        assert all(equal(o, a, impl) for o, a in zip(outputs, alone, strict=True))
    stats = crowd.stats
    assert stats.preemptions_total > 0
    assert stats.kv_copies_total > 10
    assert stats.prefix_hit_tokens_total > 200
    assert stats.kv_blocks_used == 0


@pytest.mark.parametrize("index", ["hash", "radix"])
def test_forks_from_any_token_equal_a_prompt_of_these_tokens(model, impl, index):
    name, folder, _ = model
    rng = random.Random(name)
    llm = load(folder, impl, prefix_index=index)
    cold = load(folder, impl, prefix_caching=False)
    prompt = some_tokens(rng, 45)
    [trunk] = llm.generate([prompt], sampling(rng, n=2, max_tokens=30), use_tqdm=False)
    for at in (1, 16, 45, 46, 59, 60, 75):
        for child in (0, 1):
            more = some_tokens(rng, rng.randrange(1, 4))
            params = sampling(rng, max_tokens=8)
            forked = llm.fork(trunk, more, params, index=child, at_token=at)
            tokens = (prompt + trunk.outputs[child].token_ids)[:at]
            assert forked.prompt_token_ids == tokens + more
            assert forked.num_cached_tokens >= min(at, 74)
            [alone] = cold.generate([tokens + more], params, use_tqdm=False)
            assert equal(forked, alone, impl)
            again = llm.fork(forked, [5], params)
            assert again.num_cached_tokens == at + len(more) + 7


def test_a_running_request_can_be_forked_without_computing_it_again(model, impl):
    _, folder, _ = model
    llm = load(folder, impl)
    prompt, params = (
        list(range(3, 24)),
        SamplingParams(temperature=0, max_tokens=40, ignore_eos=True),
    )
    stream = llm.stream(prompt, params)
    for _ in range(10):
        next(stream)
    [running] = llm._history._running
    forked = llm.fork(running, [9, 9], params)
    assert forked.num_cached_tokens == len(prompt) + 9  # all but the token drawn last
    rest = [token for piece in stream for token in piece.token_ids]
    assert len(rest) == 30
    [alone] = load(folder, impl).generate([forked.prompt_token_ids], params, use_tqdm=False)
    assert forked.outputs[0].token_ids == alone.outputs[0].token_ids


def test_eight_answers_cost_one_prompt_and_hold_the_least_blocks(model, impl):
    _, folder, _ = model
    llm = load(folder, impl, max_num_batched_tokens=200, max_num_seqs=8, max_model_len=512)
    prompt = some_tokens(random.Random(1), 403)
    engine, manager = llm._local.engine, llm._local.engine._scheduler._manager
    params = SamplingParams(n=8, seed=3, max_tokens=21, ignore_eos=True)
    engine.add(llm._door.request(prompt, params, request_id="r"))
    while engine.has_work:
        engine.step()
        live = list(engine._scheduler._roster.live.values())
        if len(live) == 8:  # after the step that drew their latest tokens
            assert engine.stats.kv_blocks_used == least(manager, 403, live[0].num_computed)
    assert engine.stats.computed_tokens_total == 403 + 8 * 20


def least(manager, prompt: int, computed: int) -> int:
    """Full blocks of the prompt once, all others eight times; of a window what the last token
    saw."""
    blocks = 0
    for group in manager._groups:
        first, end = group.first_seen(computed - 1) // 16, -(-computed // 16)
        shared = max(0, prompt // 16 - first)
        blocks += end - first if computed == prompt else shared + 8 * (end - first - shared)
    return blocks


@pytest.mark.parametrize("early", [True, False, "never"])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_beams_equal_those_of_transformers(model, impl, early, penalty):
    _, folder, theirs = model
    prompt, width, length = some_tokens(random.Random(2), 37), 4, 24
    params = BeamSearchParams(
        beam_width=width, max_tokens=length, length_penalty=penalty, early_stopping=early
    )
    llm = load(folder, impl)
    [ours] = llm.beam_search([prompt], params, use_tqdm=False)
    for eos in (2, ours.outputs[1].token_ids[5]):  # one that beams meet, too
        llm._door._info = llm.info.__class__(**{**_fields(llm.info), "eos_token_ids": (eos,)})
        [ours] = llm.beam_search([prompt], params, use_tqdm=False)
        found = theirs.generate(
            torch.tensor([prompt]),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=length,
            length_penalty=penalty,
            early_stopping=early,
            do_sample=False,
            eos_token_id=eos,
            pad_token_id=eos,
            return_dict_in_generate=True,
            output_scores=True,
        )
        expected = [_upto(tokens, eos) for tokens in found.sequences[:, 37:].tolist()]
        assert [c.token_ids for c in ours.outputs] == expected
        scores = [c.cumulative_logprob / len(c.token_ids) ** penalty for c in ours.outputs]
        assert scores == pytest.approx(found.sequences_scores.tolist(), rel=1e-4)
    assert llm.stats.kv_blocks_used == 0


def _fields(info):
    return {name: getattr(info, name) for name in info.__struct_fields__}


def _upto(tokens: list[int], eos: int) -> list[int]:
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens


def test_beams_in_a_crowd_equal_those_alone(model, impl):
    name, folder, _ = model
    rng = random.Random(name)
    several = 2 if name == "mistral" else 1  # two beams must have room together
    crowd = small(folder, impl, 208, several, max_num_seqs=5, max_num_batched_tokens=23)
    alone = load(folder, impl)
    jobs = [some_tokens(rng, rng.randrange(5, 40)) for _ in range(6)]
    params = [
        BeamSearchParams(beam_width=2, max_tokens=20, logprobs=1).sampling_params()
        if i % 2
        else sampling(rng, n=2, max_tokens=60)
        for i in range(len(jobs))
    ]
    for job, param, output in zip(
        jobs, params, crowd.generate(jobs, params, use_tqdm=False), strict=True
    ):
        assert output.error is None, output.error
        assert equal(output, alone.generate([job], param, use_tqdm=False)[0], impl)
    assert crowd.stats.preemptions_total > 0
