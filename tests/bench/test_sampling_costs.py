from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.bench import sampling
from octavo.bench.sampling import CASES, Cost, table
from octavo.cli import main


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sampling, "VOCABS", (300, 500))
    flags = ["--rows", "3", "--repeats", "2", "--threads", "1"]
    assert main(["bench", "sampling", *flags, "--json", str(tmp_path / "out.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(CASES) and "300" in lines[0] and "500" in lines[0]
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["rows"] == 3 and len(report["costs"]) == 2 * len(CASES)
    assert all(0 < cost["python_ms"] < cost["ms"] for cost in report["costs"])


def test_table() -> None:
    costs = [Cost("greedy", vocab, ms, 0.25) for vocab, ms in ((49_152, 1.5), (150_000, 4.0))]
    assert table("64 rows, 2 threads", costs).splitlines() == [
        "64 rows, 2 threads            49,152  python     150,000  python  ms",
        "greedy                          1.50    0.25        4.00    0.25",
    ]


@pytest.mark.parametrize(
    "flags", [["--threads", "0"], ["--rows", "0"], ["--repeats", "0"], ["--json", "/no/such/x"]]
)
def test_impossible_options_are_named(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sampling", *flags]) == 1
    assert flags[0] in capsys.readouterr().err
