"""What the doctor finds on this machine, and on others."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from octavo.base.errors import ConfigError
from octavo.cli import main
from octavo.doctor import machine
from octavo.engine import hardware
from octavo.native.library import library


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {line[:12].strip(): line[12:] for line in capsys.readouterr().out.splitlines()}


def test_this_machine(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "octavo" / "models").mkdir(parents=True)
    (tmp_path / "octavo" / "models" / "one").write_bytes(b"x" * 1536)
    assert main(["doctor"]) == 0
    found = findings(capsys)
    assert found["Python"].endswith(sys.executable)
    assert found["memory"].endswith("iB free")
    assert found["native"].split(";")[0] == library().variant
    assert "portable" in found["built"]
    assert found["cache"] == f"{tmp_path}/octavo, 1 file, 1.50 KiB"


def test_why_no_better_variant(capsys, monkeypatch):
    taken = SimpleNamespace(variant="avx2", cpu_variants=lambda: ["portable", "avx2", "avx512"])
    monkeypatch.setattr(machine, "library", lambda: taken)
    assert main(["doctor"]) == 0
    reasons = "avx2; not avx512: not built; not avx512bf16: this CPU lacks it"
    assert findings(capsys)["native"] == reasons


@pytest.mark.parametrize("error", [ConfigError("not built"), ImportError("not built")])
def test_where_nothing_can_run(error, capsys, monkeypatch):
    def fail() -> None:
        raise error

    monkeypatch.setattr(machine, "library", fail)
    assert main(["doctor"]) == 1
    assert findings(capsys)["native"] == "cannot run: not built"


@pytest.mark.parametrize(
    "setting,said",
    [
        ("always [madvise] never\n", "madvise"),
        ("always madvise [never]\n", "never; where `always` or `madvise`, weights are read faster"),
        (None, "unknown"),
    ],
)
def test_huge_pages(setting, said, capsys, tmp_path, monkeypatch):
    if setting is not None:
        (tmp_path / "enabled").write_text(setting)
    monkeypatch.setattr(hardware, "HUGE_PAGES", tmp_path / "enabled")
    main(["doctor"])
    assert findings(capsys)["huge pages"] == said


def test_no_torch_though_there_is_a_gpu(capsys, tmp_path, monkeypatch):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(hardware, "DEV", tmp_path)
    monkeypatch.setattr(hardware, "find_spec", lambda name: None)
    main(["doctor"])
    assert "pip install 'octavo[torch]'" in findings(capsys)["CUDA"]
