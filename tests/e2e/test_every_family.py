"""Every native family gives the logits and the greedy tokens of Hugging Face Transformers, by both
ways to compute it: together with strangers, cut into steps of any length, from a warm cache,
preempted."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES, HYBRIDS, tiny_model

from octavo import LLM, SamplingParams
from octavo.base.settings import EngineSettings
from octavo.bench.quality import Model
from octavo.engine.resolved import resolve
from octavo.files.model_files import ModelFiles

VOCAB, OUTPUT = 512, 64
LENGTHS = (1, 33, 70)  # the longest beyond every window, chunk and block
GREEDY = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True)


@dataclass(frozen=True)
class Case:
    """A model, and what Transformers makes of it."""

    folder: str
    prompts: list[list[int]]
    tokens: list[list[int]]  # generated greedily
    logits: np.ndarray  # of the longest prompt: [T, vocab]


@pytest.fixture(scope="module", params=(*FAMILIES, *HYBRIDS))
def case(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp(request.param)
    model = tiny_model(folder, request.param)
    rng = random.Random(request.param)
    prompts = [[rng.randrange(VOCAB) for _ in range(n)] for n in LENGTHS]
    with torch.inference_mode():
        logits = model(torch.tensor(prompts[-1:])).logits[0].numpy()
    return Case(str(folder), prompts, [greedy(model, prompt) for prompt in prompts], logits)


def greedy(model: Any, prompt: list[int]) -> list[int]:
    """The whole sequence again for every token: no cache that could be wrong."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(OUTPUT):
            logits = model(torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits
            ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt) :]


def options(impl: str, **others: Any) -> dict[str, Any]:
    common = {
        "model_impl": impl,
        "dtype": "float32",
        "kv_memory": "8MiB",
        "state_interval": 32,
        "skip_tokenizer_init": True,
        "threads": 1,
    }
    return common | others


def load(folder: str, impl: str, **others: Any) -> LLM:
    return LLM(folder, **options(impl, **others))


def tokens(outputs: Any) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("chunk", [1, 7, 70])
@pytest.mark.parametrize("impl", ["native", "torch"])
def test_logits(case: Case, impl: str, chunk: int) -> None:
    settings = EngineSettings.flat(model=case.folder, **options(impl))
    ids = np.array(case.prompts[-1])
    resolved = resolve(settings, ModelFiles("tiny", Path(case.folder)))
    model = Model(resolved, settings.cache.block_size, len(ids))
    for start in range(0, len(ids), chunk):
        stop = min(start + chunk, len(ids))
        error = abs(model.logits(ids, start, stop) - case.logits[start:stop]).max()
        assert error < 1e-4 * abs(case.logits).max()


@pytest.mark.parametrize("chunk", [7, 2048])
def test_native_together_and_warm(case: Case, chunk: int) -> None:
    check_warm(case, "native", chunk)


def test_native_token_by_token(case: Case) -> None:
    folder, prompts, expected = case.folder, case.prompts, case.tokens
    llm = load(folder, "native", max_num_batched_tokens=1, max_num_seqs=1)
    assert tokens(llm.generate(prompts, GREEDY, use_tqdm=False)) == expected


def test_native_preempted(case: Case) -> None:
    check_preempted(case, "native")


def test_torch_together_and_warm(case: Case) -> None:
    check_warm(case, "torch", 41)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 7, 2048])
def test_torch_in_chunks(case: Case, chunk: int) -> None:
    check_warm(case, "torch", chunk)


def test_torch_preempted(case: Case) -> None:
    check_preempted(case, "torch")


def check_warm(case: Case, impl: str, chunk: int) -> None:
    folder, prompts, expected = case.folder, case.prompts, case.tokens
    llm = load(folder, impl, max_num_batched_tokens=chunk, max_num_seqs=min(chunk, 8))
    assert tokens(llm.generate(prompts, GREEDY, use_tqdm=False)) == expected
    longer = [p + e[:20] for p, e in zip(prompts, expected, strict=True)]
    rest = SamplingParams(temperature=0.0, max_tokens=OUTPUT - 20, ignore_eos=True)
    warm = llm.generate(longer, rest, use_tqdm=False)
    assert tokens(warm) == [e[20:] for e in expected]
    assert sum(output.num_cached_tokens for output in warm) > 0


def check_preempted(case: Case, impl: str) -> None:
    """Every few steps somebody gives way, and finds some of what it had again, or nothing."""
    folder, prompts, expected = case.folder, case.prompts, case.tokens
    for prefix_caching in (True, False):
        llm = load(
            folder, impl, prefix_caching=prefix_caching, max_num_batched_tokens=16, max_num_seqs=8
        )
        engine, rng = llm._local.engine, random.Random(0)
        found: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}
        for i, prompt in enumerate(prompts):
            engine.add(llm._door.request(prompt, GREEDY, request_id=str(i)))
        for step in itertools.count():
            if not engine.has_work:
                break
            running = engine._scheduler._roster.running
            if step % 7 == 6 and running:
                engine._scheduler._preempt(rng.choice(running))
            for delta in engine.step():
                found[delta.request_id] += delta.token_ids
        assert list(found.values()) == expected
        assert llm.stats.preemptions_total > 5


@pytest.mark.parametrize("family", ["falcon_h1", "lfm2", "nemotron_h", "qwen3_5"])
def test_int8_beside_states(tmp_path: Path, family: str) -> None:
    """The same cold and warm, in chunks, and by both ways."""
    tiny_model(tmp_path, family)
    prompts = [[n * 7 % VOCAB for n in range(length)] for length in LENGTHS]
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    whole, cut, torch_layers = (
        load(str(tmp_path), impl, kv_dtype="int8", max_num_batched_tokens=chunk, max_num_seqs=7)
        for impl, chunk in (("native", 2048), ("native", 7), ("torch", 41))
    )
    assert whole.info.kv_dtype == "int8"
    cold = tokens(whole.generate(prompts, params, use_tqdm=False))
    for llm in (whole, cut, torch_layers):
        assert tokens(llm.generate(prompts, params, use_tqdm=False)) == cold
