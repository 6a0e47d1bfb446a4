"""Blocks that went to the swap tier come back as they were, or are computed again."""

from __future__ import annotations

import random

import pytest
from test_kv_memory import equal, load, sampling, some_tokens
from tiny_models import tiny_model

from octavo import LLM
from octavo.base.errors import ConfigError
from octavo.models.memory import kv_bytes_for
from octavo.worker.swap_files import PageFiles


@pytest.fixture(scope="module", params=["llama", "qwen2_mixed"])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    tiny_model(folder, request.param)
    return folder


@pytest.fixture(params=["native", "torch"])
def impl(request) -> str:
    return request.param


def swapping(folder, impl, **options):
    """Room for a few prompts only, and a swap tier."""
    layout = load(folder, impl).info.layout
    memory = kv_bytes_for(layout.groups, 16, 160)
    settings = {"kv_memory": str(memory), "max_model_len": 160, "kv_swap": "64MiB"}
    return load(folder, impl, **(settings | options))


def prompts_and_answers(folder, impl):
    rng = random.Random(5)
    prompts = [some_tokens(rng, rng.randrange(60, 120)) for _ in range(8)]
    params = [sampling(rng, max_tokens=9) for _ in prompts]
    cold = load(folder, impl, prefix_caching=False)
    return prompts, params, cold.generate(prompts, params, use_tqdm=False)


def ask_all(llm, prompts, params):
    """One after another, so that the pool holds few of them; tokens found in all."""
    outputs = [
        llm.generate([p], s, use_tqdm=False)[0] for p, s in zip(prompts, params, strict=True)
    ]
    return outputs, sum(output.num_cached_tokens for output in outputs)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_what_was_evicted_comes_back(folder, impl, where, tmp_path):
    prompts, params, expected = prompts_and_answers(folder, impl)
    options = {"kv_swap_dir": str(tmp_path / "kv")} if where == "disk" else {}
    llm = swapping(folder, impl, **options)
    _, cold = ask_all(llm, prompts, params)
    outputs, warm = ask_all(llm, prompts, params)
    assert all(equal(o, e, impl) for o, e in zip(outputs, expected, strict=True))
    assert warm > cold + sum(len(p) // 16 * 16 for p in prompts) * 0.9
    assert llm.stats.kv_blocks_used == 0
    llm.close()


def test_a_restart_with_the_same_model_and_folder_starts_warm(folder, impl, tmp_path):
    prompts, params, expected = prompts_and_answers(folder, impl)
    first = swapping(folder, impl, kv_swap_dir=str(tmp_path / "kv"))
    ask_all(first, prompts, params)
    first.close()
    again = swapping(folder, impl, kv_swap_dir=str(tmp_path / "kv"))
    outputs, warm = ask_all(again, prompts, params)
    assert all(equal(o, e, impl) for o, e in zip(outputs, expected, strict=True))
    assert warm >= sum((len(p) - 1) // 16 * 16 for p in prompts)
    again.close()


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_what_is_damaged_is_computed_again(folder, impl, damage, tmp_path):
    prompts, params, expected = prompts_and_answers(folder, impl)
    first = swapping(folder, impl, kv_swap_dir=str(tmp_path / "kv"))
    ask_all(first, prompts, params)
    first.close()
    rng = random.Random(1)
    files = sorted((tmp_path / "kv").glob("*.page"))
    for file in rng.sample(files, len(files) // 2):
        content = bytearray(file.read_bytes())
        if damage == "remove":
            file.unlink()
            continue
        content[-rng.randrange(1, 1000)] ^= 1 << rng.randrange(8)
        file.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    again = swapping(folder, impl, kv_swap_dir=str(tmp_path / "kv"))
    outputs, _ = ask_all(again, prompts, params)
    assert all(equal(o, e, impl) for o, e in zip(outputs, expected, strict=True))
    assert again.stats.kv_blocks_used == 0
    again.close()


def test_a_reset_forgets_what_lies_in_the_folder_too(folder, tmp_path):
    prompts, params, _ = prompts_and_answers(folder, "native")
    first = swapping(folder, "native", kv_swap_dir=str(tmp_path / "kv"))
    ask_all(first, prompts, params)
    assert first.reset_prefix_cache()
    first.close()
    assert list((tmp_path / "kv").glob("*.page")) == []


def test_another_number_format_finds_nothing(folder, impl, tmp_path):
    prompts, params, _ = prompts_and_answers(folder, impl)
    first = swapping(folder, impl, kv_swap_dir=str(tmp_path / "kv"))
    ask_all(first, prompts[:2], params[:2])
    first.close()
    other = swapping(folder, impl, kv_swap_dir=str(tmp_path / "kv"), dtype="bfloat16")
    _, found = ask_all(other, prompts[:2], params[:2])
    assert found == 0
    other.close()


def test_settings_that_contradict_each_other(folder, tmp_path):
    with pytest.raises(ConfigError, match="kv_swap_dir needs kv_swap"):
        LLM(str(folder), kv_memory="8MiB", kv_swap_dir=str(tmp_path / "kv"))
    with pytest.raises(ConfigError, match="prefix_caching"):
        LLM(str(folder), kv_memory="8MiB", kv_swap="8MiB", prefix_caching=False)
    tiny_model(tmp_path / "hybrid", "falcon_h1")
    with pytest.raises(ConfigError, match="kv_swap keeps no recurrent states"):
        LLM(str(tmp_path / "hybrid"), kv_memory="8MiB", kv_swap="8MiB")
    held = PageFiles(tmp_path / "kv")
    with pytest.raises(ConfigError, match="another process"):
        LLM(str(folder), kv_memory="8MiB", kv_swap="8MiB", kv_swap_dir=str(tmp_path / "kv"))
    held.close()
