"""Budgets and lengths: what "auto" means, and what is refused with which advice."""

from __future__ import annotations

import dataclasses

import pytest
from tiny_models import tiny_model

from octavo.base.errors import CapacityError, ConfigError
from octavo.base.kv import KVGroup
from octavo.base.settings import EngineSettings, ModelSettings
from octavo.base.units import parse_bytes, show_bytes
from octavo.engine import hardware
from octavo.engine.resolve import (
    Memory,
    compute_dtype,
    kv_budget,
    max_model_len,
    quantization,
    state_interval,
    ways,
)
from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.models.memory import kv_layout

GIB = 2**30


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model(folder, "llama")
    return model_spec(ModelFiles("tiny", folder), "float32")


ALL = {"float32", "float16", "bfloat16"}


@pytest.mark.parametrize(
    "wanted,checkpoint,fast,dtype",
    [
        ("auto", "float16", {"float32", "bfloat16"}, "bfloat16"),
        ("auto", "float16", ALL, "float16"),
        ("auto", "bfloat16", {"float32"}, "float32"),
        ("auto", "float32", ALL, "float32"),
        ("float16", "bfloat16", {"float32"}, "float16"),
    ],
)
def test_compute_dtype(wanted, checkpoint, fast, dtype):
    assert compute_dtype(ModelSettings(dtype=wanted), checkpoint, fast) == dtype


def test_bf16_is_a_dtype_too():
    assert compute_dtype(ModelSettings(quantization="bf16"), "float32", ALL) == "bfloat16"
    with pytest.raises(ConfigError, match="quantization bf16 contradicts dtype float32"):
        compute_dtype(ModelSettings(quantization="bf16", dtype="float32"), "float32", ALL)


@pytest.mark.parametrize(
    "dtype,wanted,computed_by,found",
    [
        ("auto", "auto", "native", "auto"),
        ("float32", "auto", "native", "none"),
        ("float32", "q8_0", "native", "q8_0"),
        ("auto", "bf16", "native", "none"),
        ("auto", "auto", "torch", "none"),
    ],
)
def test_quantization(dtype, wanted, computed_by, found):
    model = ModelSettings(dtype=dtype, quantization=wanted)
    assert quantization(model, computed_by) == found


def test_what_may_compute():
    assert ways("auto", "cpu") == ("native", "torch", "transformers")
    assert ways("auto", "cuda") == ("torch", "transformers")
    assert ways("torch", "cpu") == ("torch",)
    with pytest.raises(ConfigError, match="model_impl native is for the CPU"):
        ways("native", "cuda")
    with pytest.raises(ConfigError, match="quantization q8_0 needs the native kernels of the CPU"):
        quantization(ModelSettings(quantization="q8_0"), "torch")


@pytest.mark.parametrize(
    "flags,dtypes",
    [("flags : avx2 fma", {"float32"}), ("flags : avx512_bf16", {"float32", "bfloat16"})],
)
def test_dtypes_that_a_cpu_computes(flags, dtypes, tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    info.write_text(flags)
    monkeypatch.setattr(hardware, "CPUINFO", info)
    assert hardware.fast_dtypes("cpu", "torch") == dtypes
    assert hardware.fast_dtypes("cpu", "native") == ALL


def test_max_model_len(spec):
    assert max_model_len(None, spec) == 512
    assert max_model_len(100, spec) == 100
    for wanted in (1, 513):
        with pytest.raises(ConfigError, match="between 2 and 512"):
            max_model_len(wanted, spec)


def test_the_default_budget_is_a_share_but_never_more_than_could_be_filled(spec):
    settings = EngineSettings.flat(max_num_seqs=2)
    memory = Memory(free=8 * GIB, weights=2 * GIB)
    page = 16 * 3 * 2 * 2 * 16 * 4  # tokens, layers, K and V, heads, dim, bytes
    assert kv_budget(settings, spec, memory, "cpu", 512) == page * (2 * 32 + 1)
    assert kv_budget(settings, spec, Memory(1000, 0), "cpu", 512) == 500


def test_the_default_budget_has_states_for_all(spec):
    """Two for each sequence, and one for every interval of all their tokens."""
    state = KVGroup(name="state", kind="state", layers=(0,), state_bytes=1000)
    hybrid = dataclasses.replace(spec, kv_groups=(*spec.kv_groups, state))
    settings = EngineSettings.flat(max_num_seqs=2, state_interval=64)
    memory = Memory(free=8 * GIB, weights=2 * GIB)
    more = kv_budget(settings, hybrid, memory, "cpu", 512) - kv_budget(
        settings, spec, memory, "cpu", 512
    )
    assert more == 1000 * (1 + 2 * 2 + 2 * 512 // 64)
    budget = kv_budget(settings, hybrid, memory, "cpu", 512)
    layout = kv_layout(hybrid.kv_groups, 16, budget, longest=512, sequences=2, state_interval=64)
    assert (layout.total_bytes, layout.sequences(512)) == (budget, 2)


def test_no_states_are_kept_for_nobody(spec):
    state = KVGroup(name="state", kind="state", layers=(0,), state_bytes=1000)
    alone = dataclasses.replace(spec, kv_groups=(state,))
    settings = EngineSettings.flat(max_num_seqs=2, prefix_caching=False)
    memory = Memory(free=8 * GIB, weights=2 * GIB)
    assert kv_budget(settings, alone, memory, "cpu", 512) == 1000 * (1 + 2 * 2)


@pytest.mark.parametrize(
    "options,interval",
    [
        ({}, 512),
        ({"block_size": 48}, 528),
        ({"block_size": 1024}, 1024),
        ({"block_size": 48, "state_interval": 100}, 100),  # refused where there are states
        ({"prefix_caching": False}, None),
        ({"prefix_caching": False, "state_interval": 64}, None),
    ],
)
def test_after_how_many_tokens_a_state_is_kept(options, interval):
    assert state_interval(EngineSettings.flat(**options).cache) == interval


def test_a_stated_budget(spec):
    memory = Memory(free=8 * GIB, weights=2 * GIB)
    assert kv_budget(EngineSettings.flat(kv_memory="1GiB"), spec, memory, "cpu", 512) == GIB
    assert kv_budget(EngineSettings.flat(kv_memory="50%"), spec, memory, "cpu", 512) == 3 * GIB
    with pytest.raises(CapacityError, match="--kv-memory 6144MiB or less"):
        kv_budget(EngineSettings.flat(kv_memory="7GiB"), spec, memory, "cpu", 512)


@pytest.mark.parametrize(
    "smaller,advice",
    [
        (("--dtype bfloat16", GIB), "--dtype bfloat16, which takes 1.00 GiB"),
        (("--dtype bfloat16", GIB + 1), "a smaller model"),
        (None, "a smaller model"),
    ],
)
def test_weights_that_do_not_fit(spec, smaller, advice):
    said = f"weights take 2.00 GiB and 1.00 GiB are free; use {advice}"
    with pytest.raises(CapacityError, match=said):
        kv_budget(EngineSettings(), spec, Memory(GIB, 2 * GIB, smaller), "cpu", 512)


@pytest.mark.parametrize(
    "text,count",
    [("2GiB", 2 * GIB), ("1.5 mib", 3 * 2**19), ("10%", 100), ("7", 7), ("1GB", 10**9)],
)
def test_amounts_of_memory(text, count):
    assert parse_bytes(text, available=1000) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "2 bananas", "101%", "0", "0%", "1e9"])
def test_what_is_no_amount_of_memory(text):
    with pytest.raises(ConfigError):
        parse_bytes(text, available=1000)


def test_shown_bytes():
    shown = [show_bytes(n) for n in (0, 1023, 1536, 2**20, 5 * GIB)]
    assert shown == ["0 B", "1023 B", "1.50 KiB", "1.00 MiB", "5.00 GiB"]


def test_unknown_options_are_refused_by_name():
    with pytest.raises(ConfigError, match="kv_memroy"):
        EngineSettings.flat(kv_memroy="1GiB")


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bf16"},
        {"device": "cuda:0"},
        {"policy": "fifo"},
        {"load_format": "dumy"},
        {"kv_memory": 2**30},
        {"threads": -1},
        {"max_num_seqs": 0},
        {"max_num_seqs": "5"},
        {"watermark": "x"},
        {"threads": 100_000},
        {"block_size": "16"},
        {"block_size": True},
        {"prefix_caching": 1},
        {"watermark": 1.0},
        {"max_num_batched_tokens": 3},
        {"seed": None},
        {"seed": 10**30},
    ],
)
def test_impossible_options_are_refused_by_name(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        EngineSettings.flat(**options)


def test_options_and_flat_are_inverse():
    settings = EngineSettings.flat(model="m", seed=3, kv_memory="1GiB", max_num_seqs=7)
    assert EngineSettings.flat(model="m", **settings.options()) == settings
