"""What the plan says of KV memory is what is allocated and what is used, to the byte and block."""

from __future__ import annotations

import random

import pytest
from test_kv_memory import _pages, load, some_tokens
from tiny_models import tiny_config, tiny_model

from octavo import SamplingParams
from octavo.base.errors import ConfigError, ModelError
from octavo.core.block_pool import NULL_BLOCK
from octavo.models.memory import kv_bytes_for

WINDOW = 24  # of tiny_models
CHUNK = 40
BLOCK = 16
SLIDING = "sliding_attention"
GEMMA = {"num_hidden_layers": 7, "layer_types": [*[SLIDING] * 5, "full_attention", SLIDING]}


@pytest.fixture(params=["native", "torch"])
def impl(request) -> str:
    return request.param


def steps(llm, prompt: int, output: int):
    """Run one request; after each step the sequence, and how many tokens it had computed before."""
    engine = llm._local.engine
    params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
    tokens = some_tokens(random.Random(3), prompt)
    engine.add(llm._door.request(tokens, params, request_id="r"))
    [sequence] = engine._scheduler._roster.live.values()
    while sequence.num_known < prompt + output - 1:
        before = sequence.num_computed
        engine.step()
        yield sequence, before
    while engine.has_work:
        engine.step()


@pytest.mark.parametrize("family,options", [("mistral", {}), ("gemma3", GEMMA)])
def test_windows_hold_what_they_see_and_no_more(impl, tmp_path, family, options):
    """Full attention holds all; a group with windows what a step's tokens see, and write."""
    tiny_model(tmp_path, family, **options)
    llm = load(tmp_path, impl, max_num_batched_tokens=CHUNK, max_num_seqs=4, kv_memory="40MiB")
    groups = llm.info.layout.groups
    windows = sum(len(group.layers) for group in groups if group.window == WINDOW)
    assert windows == (6 if family == "gemma3" else 2)
    most = 0
    for sequence, before in steps(llm, 400, 30):
        end = -(-sequence.num_computed // BLOCK)
        seen = end - max(0, before - WINDOW + 1) // BLOCK
        held = [len(table) - table.count(NULL_BLOCK) for table in sequence.tables]
        assert held == [seen if group.window else end for group in groups]
        assert llm.stats.kv_blocks_used == sum(held)
        assert sum(held) <= llm.info.layout.blocks_for(sequence.num_known)[0]
        most = max(most, seen)
    assert most == (WINDOW + CHUNK + BLOCK) // BLOCK


def latent(config) -> int:
    return config.kv_lora_rank + config.qk_rope_head_dim


def heads(config) -> int:
    """Numbers of K and V, and of int8 a scale of four bytes for each."""
    return 2 * config.num_key_value_heads * (config.hidden_size // config.num_attention_heads + 4)


@pytest.mark.parametrize(
    "family,kv_dtype,each",
    [
        ("deepseek_v3", "float32", lambda config: 4 * latent(config)),
        ("deepseek_v3", "bfloat16", lambda config: 2 * latent(config)),
        ("deepseek_v2", "float16", lambda config: 2 * latent(config)),
        ("llama", "int8", heads),
    ],
)
def test_bytes_of_a_token_are_planned_allocated_and_used(impl, tmp_path, family, kv_dtype, each):
    """Of latent attention: one latent and one rotary key for all heads, and nothing else."""
    tiny_model(tmp_path, family)
    config = tiny_config(family)
    token = each(config) * config.num_hidden_layers
    kept = {"kv_dtype": kv_dtype, "kv_memory": str(11 * BLOCK * token)}
    llm = load(tmp_path, impl, max_model_len=160, **kept)
    assert [group.bytes_per_token for group in llm.info.layout.groups] == [token]
    assert f"{token} B " in llm.info.table
    [pages] = _pages(llm._local.engine._executor._worker._runner)
    assert pages.shape == (11, BLOCK * token)
    assert llm.stats.kv_blocks == 10  # all but the null block
    used = [llm.stats.kv_blocks_used for _ in steps(llm, 100, 50)]
    assert used == [-(-computed // BLOCK) for computed in range(100, 149)]


def test_a_hybrid_runs_where_one_sequence_fits(impl, tmp_path):
    """Room for no state besides its two: none is kept, and none is needed."""
    tiny_model(tmp_path, "falcon_h1")
    longest = {"max_model_len": 160, "max_num_seqs": 2}
    groups = load(tmp_path, impl, **longest).info.layout.groups
    few = str(kv_bytes_for(groups, BLOCK, 160))
    llm = load(tmp_path, impl, kv_memory=few, **longest)
    pools = _pages(llm._local.engine._executor._worker._runner)
    assert [len(pool) for pool in pools] == [1 + 10, 1 + 2]
    seen = {(llm.stats.kv_blocks_used, llm.stats.states_used) for _ in steps(llm, 100, 40)}
    assert seen == {(7, 1), (8, 1), (9, 1)}
    assert (llm.stats.kv_blocks, llm.stats.states) == (10, 2)


def test_states_are_kept_at_ends_of_blocks_and_for_somebody(impl, tmp_path):
    tiny_model(tmp_path, "falcon_h1")
    odd = load(tmp_path, impl, block_size=48)
    assert odd.info.layout.state_interval == 528
    with pytest.raises(ConfigError, match="state_interval must be a multiple of block_size"):
        load(tmp_path, impl, block_size=48, state_interval=512)
    alone = load(tmp_path, impl, prefix_caching=False, max_num_seqs=3)
    [states] = alone.info.layout.state_pools
    assert states.num_blocks == 1 + 2 * 3


def test_latents_have_no_scales(impl, tmp_path):
    tiny_model(tmp_path, "deepseek_v3")
    with pytest.raises(ModelError, match="int8 has no form for latents"):
        load(tmp_path, impl, kv_dtype="int8")
