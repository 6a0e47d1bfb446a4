"""Figures from times that can be added up by hand."""

from __future__ import annotations

import json

import pytest
from tiny_models import tiny_model

from octavo.base.errors import ModelError
from octavo.bench import quality, run
from octavo.bench.report import Timeline, figures, median, table
from octavo.bench.steps import chart
from octavo.bench.workloads import Work
from octavo.cli import main

RUNS = [
    Timeline(10, 100.0, [(101.0, 1), (101.5, 1), (102.5, 2)]),
    Timeline(30, 100.0, [(103.0, 1), (104.0, 1)]),
]


def test_figures():
    f = figures(RUNS)
    assert (f.requests, f.prompt_tokens, f.output_tokens) == (2, 40, 6)
    assert f.wall_s == 4.0
    assert f.output_tok_s == 1.5
    assert f.total_tok_s == 11.5
    assert f.ttft_ms == pytest.approx(2000)
    assert RUNS[0].itls == [0.5, 0.5, 0.5]
    assert f.decode_ms_per_token == pytest.approx(500)
    assert f.decode_ms_p99 == pytest.approx(985)


def test_medians_are_taken_field_by_field():
    repeats = [figures([Timeline(1, 0.0, [(end, 1)])]) for end in (3.0, 1.0, 2.0)]
    assert median(repeats).wall_s == 2.0
    shown = table("name", repeats)
    assert "3 runs" in shown
    assert [line.split()[1:] for line in shown.splitlines() if line.startswith("wall_s")] == [
        ["2.00", "1.00", "3.00"]
    ]


@pytest.mark.parametrize("kind", ["throughput", "latency", "serve"])
def test_each_kind_measures_and_writes(kind, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "model"
    tiny_model(folder, "llama", vocab_size=40_000)
    if kind == "serve":
        from tiny_chat import tiny_chat_model

        tiny_chat_model(folder, vocab_size=40_000)
    monkeypatch.setattr(run, "workload", lambda name: [Work([5] * 20, 4), Work([6] * 9, 3)])
    out = tmp_path / "figures.json"
    flags = ["--model", str(folder), "--kv-memory", "8MiB", "--threads", "1", "--repeats", "2"]
    flags += ["--workload", "single", "--workload", "mixed"]
    assert main(["bench", kind, *flags, "--json", str(out)]) == 0
    reports = json.loads(out.read_text())
    assert [report["workload"] for report in reports] == ["single", "mixed"]
    for report in reports:
        assert len(report["runs"]) == 2
        assert report["output_tokens"] == 7
        assert report.keys() > {"model", "quantization", "machine", "settings"}
        for figure in ("wall_s", "output_tok_s", "total_tok_s", "ttft_ms"):
            assert report[figure] > 0
        assert report["decode_ms_per_token"] >= 0  # 0 where tokens have no text of their own
        assert report["peak_rss_mb"] > 20
    shown = capsys.readouterr().out
    assert "decode_ms_per_token" in shown
    assert ("roofline: " in shown) == (kind != "serve")


def test_steps_are_drawn_by_rows_and_by_context(tmp_path, capsys):
    tiny_model(tmp_path, "llama", vocab_size=40_000)
    file = tmp_path / "steps.json"
    flags = ["--kv-memory", "16MiB", "--max-num-seqs", "4", "--max-model-len", "300"]
    flags += ["--repeats", "1", "--json", str(file)]
    assert main(["bench", "steps", "--model", str(tmp_path), *flags]) == 0
    points = json.loads(file.read_text())["points"]
    shape = [(point["rows"], point["context"]) for point in points]
    assert shape == [(1, 64), (2, 64), (4, 64), (1, 128), (1, 256)]
    assert all(point["ms"] > 0 for point in points)
    assert capsys.readouterr().out.count("█") > 50  # of each chart, the longest bar has as many
    assert main(["bench", "steps", "--model", str(tmp_path), "--repeats", "0"]) == 1
    assert "--repeats must be at least 1" in capsys.readouterr().err


def test_a_chart_tells_how_straight_it_is():
    lines = chart("rows", [(1, 3.0), (2, 5.0), (4, 9.0)]).splitlines()
    assert lines[-1] == "1.00 ms + 2 ms for each; the farthest point is 0% off"
    assert [line.count("█") for line in lines[1:4]] == [17, 28, 50]


def test_profile_tells_op_by_op(tmp_path, monkeypatch, capsys):
    tiny_model(tmp_path, "llama", vocab_size=40_000)
    monkeypatch.setattr(run, "workload", lambda name: [Work([5] * 20, 4)])
    assert main(["bench", "profile", "--model", str(tmp_path), "--kv-memory", "8MiB"]) == 0
    shown = capsys.readouterr().out
    assert all(op in shown for op in ("qkv", "attention", "gate_up", "down", "head"))
    flags = ["--model", str(tmp_path), "--kv-memory", "8MiB", "--model-impl", "torch"]
    assert main(["bench", "profile", *flags]) == 1
    assert "native path" in capsys.readouterr().err


def test_turns_compute_what_is_new(tmp_path, monkeypatch, capsys):
    tiny_model(tmp_path / "model", "llama", vocab_size=40_000, max_position_embeddings=2048)
    options = ["--repeats", "1", "--kv-memory", "64MiB", "--dtype", "float32", "--threads", "1"]
    options += ["--model", str(tmp_path / "model"), "--skip-tokenizer-init"]
    main(["bench", "turns", *options, "--json", str(tmp_path / "out.json")])
    turns = json.loads((tmp_path / "out.json").read_text())["turns"]
    assert [turn["prompt_tokens"] for turn in turns] == [16 + 116 * i for i in range(10)]
    assert [turn["computed"] for turn in turns] == [16] + [17] * 9
    assert "ratio" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["throughput", "steps", "turns", "quality"])
def test_code_of_a_model_is_fetched_where_it_is_trusted(kind, monkeypatch, capsys):
    def located(name, code=False):
        raise ModelError(f"{name}: code {code}")

    monkeypatch.setattr(run, "locate", located)
    monkeypatch.setattr(quality, "locate", located)
    assert main(["bench", kind, "--model", "a/b", "--trust-remote-code"]) == 1
    assert main(["bench", kind, "--model", "a/b"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "octavo: a/b: code True",
        "octavo: a/b: code False",
    ]
