"""Memory arithmetic: properties of every layout, and messages whose advice is true."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.base.errors import CapacityError, ConfigError
from octavo.base.kv import KVGroup, KVLayout
from octavo.base.units import parse_bytes
from octavo.models.llama import llama
from octavo.models.memory import (
    FEW_STATES,
    blocks_for,
    check_fit,
    equal_pages,
    kv_bytes_for,
    kv_layout,
    longest_sequence,
    weight_bytes,
)
from octavo.models.memory_table import memory_table

CONFIG = {
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


def group(index: int, bytes_per_token: int) -> KVGroup:
    return KVGroup(name=f"g{index}", layers=(index,), bytes_per_token=bytes_per_token)


# Few distinct sizes, so that groups often share a pool.
some_groups = st.lists(st.sampled_from([4, 6, 8, 1000]), min_size=1, max_size=5).map(
    lambda sizes: tuple(group(i, size) for i, size in enumerate(sizes))
)
block_sizes = st.sampled_from([1, 8, 16, 32])


@given(some_groups, block_sizes, st.integers(0, 10**6))
def test_layout_is_exact(groups: tuple[KVGroup, ...], block_size: int, budget: int) -> None:
    try:
        layout = kv_layout(groups, block_size, budget)
    except CapacityError:
        assert kv_bytes_for(groups, block_size, 1) > budget
        return
    assert layout.total_bytes <= budget
    assert layout.total_bytes + sum(g.page_bytes(block_size) for g in groups) > budget
    assert sorted(i for pool in layout.pools for i in pool.groups) == list(range(len(groups)))
    assert len({pool.page_bytes for pool in layout.pools}) == len(layout.pools)
    usable = set()
    for pool in layout.pools:
        assert all(groups[i].page_bytes(block_size) == pool.page_bytes for i in pool.groups)
        usable.add((pool.num_blocks - 1) // len(pool.groups))  # all but the null block
    assert usable == {(longest_sequence(layout) or 0) // block_size}


@given(st.integers(0, 1000), block_sizes)
def test_blocks_for_wastes_less_than_one_block(num_tokens: int, block_size: int) -> None:
    assert 0 <= blocks_for(num_tokens, block_size) * block_size - num_tokens < block_size


@given(some_groups, block_sizes, st.integers(1, 10**7), st.integers(1, 5000))
def test_advice_is_the_smallest_that_fits(
    groups: tuple[KVGroup, ...], block_size: int, budget: int, max_model_len: int
) -> None:
    try:
        layout = kv_layout(groups, block_size, budget)
        check_fit(layout, budget, max_model_len)
    except CapacityError as error:
        _check_advice(str(error), groups, block_size, budget, max_model_len)
    else:
        assert layout.sequences(max_model_len) >= 1


def _check_advice(
    message: str, groups: tuple[KVGroup, ...], block_size: int, budget: int, max_model_len: int
) -> None:
    advised = re.search(r"--kv-memory (\w+)", message)
    assert advised is not None
    more = parse_bytes(advised[1], 0)
    length = re.search(r"--max-model-len (\d+)", message)
    if length is None:  # not even one block: any length is too long
        check_fit(kv_layout(groups, block_size, more), more, 1)
        return
    check_fit(kv_layout(groups, block_size, more), more, max_model_len)
    check_fit(kv_layout(groups, block_size, budget), budget, int(length[1]))
    with pytest.raises(CapacityError):
        check_fit(kv_layout(groups, block_size, budget), budget, int(length[1]) + 1)
    slack = 1 if more < 2**20 else 2**20  # advice above one MiB is in whole MiB
    if kv_bytes_for(groups, block_size, 1) <= more - slack:
        with pytest.raises(CapacityError):
            check_fit(kv_layout(groups, block_size, more - slack), budget, max_model_len)


def test_message_names_everything() -> None:
    layout = kv_layout((group(0, 1024),), 16, 100 * 2**20)
    # 1 GiB of tokens is 2**20 tokens, 65536 blocks and the null block
    with pytest.raises(CapacityError) as caught:
        check_fit(layout, 100 * 2**20, 2**20)
    assert str(caught.value) == (
        "one sequence of 1048576 tokens needs 1.00 GiB of KV cache, which has 100.00 MiB; "
        "use --kv-memory 1025MiB or --max-model-len 102384"
    )


# ---- states ----


def state(index: int, size: int) -> KVGroup:
    return KVGroup(name=f"s{index}", kind="state", layers=(index,), state_bytes=size)


some_states = st.lists(st.sampled_from([8, 100, 5000]), min_size=1, max_size=2).map(
    lambda sizes: tuple(state(9 + i, size) for i, size in enumerate(sizes))
)
mixed_groups = st.tuples(st.just(()) | some_groups, some_states, st.booleans()).map(
    lambda parts: parts[1] + parts[0] if parts[2] else parts[0] + parts[1]
)


intervals = st.sampled_from([None, 64])


@given(
    mixed_groups,
    block_sizes,
    st.integers(0, 10**6),
    st.integers(1, 5000),
    st.integers(1, 70),
    intervals,
)
def test_a_layout_with_states_is_exact(
    groups: tuple[KVGroup, ...],
    block_size: int,
    budget: int,
    longest: int,
    sequences: int,
    interval: int | None,
) -> None:
    limits = {"longest": longest, "sequences": sequences, "state_interval": interval}
    try:
        layout = kv_layout(groups, block_size, budget, **limits)
    except CapacityError:
        assert kv_bytes_for(groups, block_size, 1) > budget
        return
    states = sum(group.state_bytes for group in groups)
    more = states + sum(group.page_bytes(block_size) for group in groups if not group.is_state)
    assert layout.total_bytes <= budget
    assert sorted(i for pool in layout.pools for i in pool.groups) == list(range(len(groups)))
    [usable] = {pool.num_blocks - 1 for pool in layout.state_pools}
    attention = layout.total_bytes - states * (usable + 1)
    if attention or interval is not None:
        assert budget < layout.total_bytes + more
    _check_states(layout, usable, states, budget, longest, sequences)


def _check_states(
    layout: KVLayout, usable: int, each: int, budget: int, longest: int, sequences: int
) -> None:
    """Two for each sequence, if all fit, or half of the memory and one of the longest are left;
    then as many to be found again as there are intervals, if one of the longest still fits."""
    sizes = (layout.groups, layout.block_size, longest)
    whole = [
        kv_bytes_for(*sizes, sequences=n + 1, state_interval=layout.state_interval)
        for n in range(sequences)
    ]
    one = kv_bytes_for(*sizes)
    half = min(budget // (4 * each), 1 + (budget - one) // (2 * each), sequences)
    assert layout.most_sequences == max(1, half, sum(size <= budget for size in whole))
    kept, attention = usable - 2 * layout.most_sequences, layout.total_bytes - each * (usable + 1)
    assert kept >= 0
    if layout.state_interval is None:
        assert kept == 0
    elif attention:
        assert kept <= max(FEW_STATES, attention // each)
        spare = budget - one - 2 * each * (layout.most_sequences - 1)
        assert kept >= min(FEW_STATES, spare // each)
        assert (layout.sequences(longest) > 0) == (one <= budget)
    else:
        assert usable + 1 == budget // each


@given(mixed_groups, st.integers(1, 10**6), st.integers(1, 3000), st.integers(1, 70), intervals)
def test_advice_with_states_is_the_smallest_that_fits(
    groups: tuple[KVGroup, ...], budget: int, longest: int, sequences: int, interval: int | None
) -> None:
    """However many may run and are kept, memory for one of the longest is left."""
    limits = {"longest": longest, "sequences": sequences, "state_interval": interval}
    try:
        check_fit(kv_layout(groups, 16, budget, **limits), budget, longest)
    except CapacityError as error:
        assert kv_bytes_for(groups, 16, longest) > budget
        more = parse_bytes(re.findall(r"--kv-memory (\w+)", str(error))[0], 0)
        length = re.search(r"--max-model-len (\d+)", str(error))
        if length is None:
            kv_layout(groups, 16, more, **limits)
            return
        check_fit(kv_layout(groups, 16, more, **limits), more, longest)
        limits["longest"] = int(length[1])
        check_fit(kv_layout(groups, 16, budget, **limits), budget, int(length[1]))
        with pytest.raises(CapacityError):
            limits["longest"] += 1
            check_fit(kv_layout(groups, 16, budget, **limits), budget, int(length[1]) + 1)
    else:
        assert kv_bytes_for(groups, 16, longest) <= budget


def test_kept_states_give_way_to_what_one_sequence_needs() -> None:
    """1000 bytes a state, 10 a token: 512 tokens take 33 blocks of 160 with the null block, and
    three states. The rest is for states to be found again: 5, as many bytes as attention has."""
    groups = (state(0, 1000), group(1, 10))
    one = 33 * 160 + 3 * 1000
    assert kv_bytes_for(groups, 16, 512) == one
    for more, kept in ((0, 0), (999, 0), (1000, 1), (3500, 3), (6000, 5)):
        layout = kv_layout(groups, 16, one + more, longest=512, sequences=1, state_interval=16)
        check_fit(layout, one + more, 512)
        assert layout.pools[1].num_blocks == 3 + kept
    with pytest.raises(CapacityError, match=r"8.09 KiB of KV cache, which has 8.08 KiB"):
        check_fit(kv_layout(groups, 16, one - 10, longest=512, state_interval=16), one - 10, 512)


def test_without_prefix_caching_no_state_is_kept() -> None:
    groups = (state(0, 1000), group(1, 10))
    layout = kv_layout(groups, 16, 100_000, longest=512, sequences=8)
    assert [pool.num_blocks for pool in layout.pools] == [83_000 // 160, 1 + 16]
    alone = kv_layout((state(0, 1000),), 16, 100_000, longest=512, sequences=8)
    assert [pool.num_blocks for pool in alone.pools] == [1 + 16]
    every = kv_layout((state(0, 1000),), 16, 100_000, longest=512, sequences=64)
    assert (every.pools[0].num_blocks, every.most_sequences) == (1 + 2 * 49, 49)


def test_no_more_run_than_planned() -> None:
    """Though there are states for more: those are kept to be found again."""
    layout = kv_layout((state(0, 1000),), 16, 100_000, sequences=8, state_interval=512)
    assert layout.state_pools[0].num_blocks == 100
    assert layout.most_sequences == layout.sequences(512) == 8
    assert layout.fits_together(8, 512, 0)
    assert not layout.fits_together(9, 512, 0)


def test_states_of_a_hybrid() -> None:
    """1000 bytes a state, 10 a token: 100 tokens take as much as a state."""
    groups = (state(0, 1000), group(1, 10))
    few = {"longest": 512, "sequences": 8, "state_interval": 512}
    layout = kv_layout(groups, 16, 100_000, **few)
    [attention, states] = layout.pools
    # 16 states of 8 sequences; 100,000 - 17,000 for blocks of 160 and a state for every 32 of them:
    # 14 states, so (83,000 - 14,000) // 160 blocks with the null block
    assert (states.groups, states.page_bytes, states.num_blocks) == ((0,), 1000, 1 + 16 + 14)
    assert (attention.groups, attention.page_bytes, attention.num_blocks) == ((1,), 160, 431)
    assert layout.sequences(512) == 8
    assert layout.blocks_for(512) == [32, 2]
    short = kv_layout(groups, 16, 100_000, longest=512, sequences=8, state_interval=16)
    assert short.pools[1].num_blocks == 1 + 16 + 41  # not more bytes than 260 blocks have
    many = kv_layout(groups, 16, 100_000, longest=512, sequences=200, state_interval=512)
    assert many.pools[1].num_blocks == 1 + 50 + 8  # half of the memory for 25 sequences


def test_states_alone_take_all() -> None:
    layout = kv_layout((state(0, 1000),), 16, 100_999, sequences=8, state_interval=512)
    assert [pool.num_blocks for pool in layout.pools] == [100]
    assert longest_sequence(layout) is None
    assert layout.sequences(10**6) == 8
    with pytest.raises(CapacityError, match=r"2.93 KiB for 3 states, but has 2.93 KiB"):
        kv_layout((state(0, 1000),), 16, 2_999, state_interval=512)


def test_states_are_kept_at_the_ends_of_blocks() -> None:
    with pytest.raises(ConfigError, match=r"a multiple of block_size \(48\)"):
        kv_layout((state(0, 8), group(1, 8)), 48, 10**6, state_interval=512)
    kv_layout((group(1, 8),), 48, 10**6, state_interval=512)


def test_states_are_not_cut_with_attention() -> None:
    kinds = (
        KVGroup(name="full", layers=(0, 1), bytes_per_token=128),
        state(2, 3000),
        KVGroup(name="window", kind="window", layers=(3,), bytes_per_token=64, window=64),
    )
    groups = equal_pages(kinds)
    assert [g.name for g in groups] == ["full", "full", "s2", "window"]
    assert groups[2] == kinds[1]


def test_the_table_shows_states() -> None:
    few = {"longest": 512, "sequences": 8, "state_interval": 512}
    layout = kv_layout((state(0, 1000), group(1, 10)), 16, 100_000, **few)
    table = memory_table(
        llama(CONFIG, "bfloat16"),
        layout,
        weight_bytes=1832,
        weight_format="q8_0",
        kv_dtype="bfloat16",
        max_model_len=512,
        runner="hand",
    )
    squeezed = [re.sub(r"\s+", " ", line.strip("│ ")) for line in table.splitlines()[2:9]]
    assert squeezed == [
        "KV per token 10 B bfloat16",
        "KV block 160 B 16 tokens, 1 layers, g1",
        "KV blocks 430 usable",
        "state 1000 B 1 layers, float32",
        "states 30 usable: 2 for each of 8 sequences, 14 to be found again",
        "KV tokens 6,880 of one sequence",
        "KV total 97.62 KiB null blocks included",
    ]


# ---- tables ----


def test_weight_bytes() -> None:
    # embedding 32*8; a layer: 4 * 8*8 attention, 3 * 8*16 mlp, 2 * 8 norms; norm 8; head 32*8
    count = 256 + 2 * (4 * 64 + 3 * 128 + 16) + 8 + 256
    assert weight_bytes(llama(CONFIG, "bfloat16"), 2) == 2 * count
    tied = llama({**CONFIG, "tie_word_embeddings": True}, "bfloat16")
    assert weight_bytes(tied, 4) == 4 * (count - 256)


def test_table_says_what_fits() -> None:
    spec = llama(CONFIG, "bfloat16")  # KV of a token: 2 layers * 2 * 8 * 2 bytes = 64
    layout = kv_layout(spec.kv_groups, 16, 11 * 16 * 64)  # 10 blocks and the null block
    table = memory_table(
        spec,
        layout,
        weight_bytes=1832,
        weight_format="q8_0",
        kv_dtype="bfloat16",
        max_model_len=64,
        runner="hand",
    )
    lines = table.splitlines()
    assert len({len(line) for line in lines}) == 1
    squeezed = [re.sub(r"\s+", " ", line.strip("│ ")) for line in lines[1:-1]]
    assert squeezed == [
        "weights 1.79 KiB 1,832 parameters, q8_0",
        "KV per token 64 B bfloat16",
        "KV block 1.00 KiB 16 tokens, 2 layers, full",
        "KV blocks 10 usable",
        "KV tokens 160 of one sequence",
        "KV total 11.00 KiB null blocks included",
        "requests 2 fit at once with 64 tokens each",
        "computed by hand",
    ]


def test_table_has_a_line_for_each_group() -> None:
    layout: KVLayout = kv_layout((group(0, 64), group(1, 32)), 16, 10**5)
    table = memory_table(
        llama(CONFIG, "bfloat16"),
        layout,
        weight_bytes=1,
        weight_format="f32",
        kv_dtype="float32",
        max_model_len=64,
        runner="hand",
    )
    assert [name for name in ("g0", "g1") if name in table] == ["g0", "g1"]


@pytest.mark.parametrize(
    "full,windows,cut",
    [
        (5, 29, [5, 5, 5, 5, 5, 5, 4]),  # Gemma 3 4B: 3 % of a page's bytes lie idle
        (4, 22, [2] * 13),  # Gemma 3 1B
        (18, 18, [18, 18]),  # gpt-oss 20B
        (13, 13, [13, 13]),  # Gemma 2 2B
    ],
)
def test_kinds_of_one_size_share_a_pool(full: int, windows: int, cut: list[int]) -> None:
    kinds = (
        KVGroup(name="full", layers=tuple(range(full)), bytes_per_token=64 * full),
        KVGroup(
            name="window",
            kind="window",
            layers=tuple(range(full, full + windows)),
            bytes_per_token=64 * windows,
            window=512,
        ),
    )
    groups = equal_pages(kinds)
    assert [len(g.layers) for g in groups] == cut
    assert sum(g.bytes_per_token for g in groups) == 64 * (full + windows)
    layout = kv_layout(kinds, 16, 10**9, chunk=256, longest=32768)
    [pool] = layout.pools
    assert pool.page_bytes == 64 * max(cut) * 16
    assert layout.total_bytes <= 10**9 < layout.total_bytes + pool.page_bytes
    bound = 512 // 16 + 1 + 256 // 16
    [most] = layout.blocks_for(32768)
    number = {name: sum(g.name == name for g in groups) for name in ("full", "window")}
    assert most == number["full"] * 2048 + number["window"] * bound
