from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.bench import limits
from octavo.bench.limits import OPERANDS, Limit, buffers, cache_sizes, measure, table, thread_counts
from octavo.cli import main
from octavo.native.interface import Native
from octavo.native.library import library, usable_variants

BRIEF = 0.005  # seconds


@pytest.fixture(params=usable_variants())
def native(request: pytest.FixtureRequest) -> Native:
    return library(request.param)


# Others may use the machine meanwhile, so each is the best of several and bounds are wide.
def best_peak(native: Native, operand: str) -> float:
    return max(native.peak(operand, 1, BRIEF) for _ in range(5))


def test_peaks_are_plausible(native: Native) -> None:
    f32, bf16, int8, int16 = (best_peak(native, operand) for operand in OPERANDS)
    assert 1e8 < f32 < 1e12
    assert (bf16 > 0) == native.variant.endswith("bf16")
    if native.variant == "portable":
        assert int8 == int16 == 0
    else:
        assert f32 / 8 < int8 < 64 * f32  # another process may have the core meanwhile
        assert (int16 > 0) == (native.variant != "avx512bf16")  # which multiplies whole bytes
        assert int16 < 8 * int8


def test_caches_and_memory_are_read_at_a_rate_that_can_be(native: Native) -> None:
    """Which is faster is not said: another process may have the core meanwhile."""
    for size in (64 << 10, 128 << 20):
        assert 1e6 < native.bandwidth(size, 1, BRIEF) < 1e13


def test_impossible_measurements_are_refused(native: Native) -> None:
    with pytest.raises(ValueError, match="there is no f64"):
        native.peak("f64", 1, BRIEF)
    for threads, seconds in ((0, BRIEF), (1, 0.0)):
        with pytest.raises(ValueError, match="must be positive"):
            native.peak("f32", threads, seconds)
        with pytest.raises(ValueError, match="must be positive"):
            native.bandwidth(1 << 20, threads, seconds)


def test_every_limit_for_every_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SMALLEST_DRAM", 8 << 20)
    monkeypatch.setattr(limits, "LARGEST_DRAM", 8 << 20)
    found = list(measure(library(), [1, 2], BRIEF))
    assert all(limit.rate > 0 for limit in found)
    ones, twos = ([x.name for x in found if x.threads == n] for n in (1, 2))
    assert ones == twos and {"f32 multiply-add", "read L2", "read L3", "read DRAM"} <= set(ones)


def test_buffers_lie_where_their_names_say() -> None:
    cache, size = cache_sizes(), buffers(2)
    assert size["L2"] == cache[2] and cache[3] / 4 < size["L3"] < cache[3] < size["DRAM"]


@pytest.mark.parametrize(
    "most,counts", [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_thread_counts(most: int, counts: list[int]) -> None:
    assert thread_counts(most) == counts


def test_table() -> None:
    found = [Limit("f32 multiply-add", n, 9.1e10 * n, "op") for n in (1, 2)]
    assert table("limits, avx2", found).splitlines() == [
        "limits, avx2                1 thread   2 threads",
        "f32 multiply-add                91.0       182.0  Gop/s",
    ]


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Limit("read L2", 1, 5e10, "B")]
    monkeypatch.setattr(limits, "measure", lambda native, threads: iter(found * len(threads)))
    assert main(["bench", "limits", "--threads", "1", "--json", str(tmp_path / "out.json")]) == 0
    assert "read L2" in capsys.readouterr().out
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["limits"] == [{"name": "read L2", "threads": 1, "rate": 5e10, "unit": "B"}]
    assert report["variant"] == library().variant and report["machine"]["cpu"]


@pytest.mark.parametrize("flags", [["--threads", "0"], ["--json", "/no/such/folder/x.json"]])
def test_impossible_options_are_named(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "limits", *flags]) == 1
    assert flags[0] in capsys.readouterr().err
