"""The matrix holds on models of several kinds, and says where it does not."""

from __future__ import annotations

import json
import re

import pytest
from faulty import FaultyNative
from tiny_chat import tiny_chat_model
from tiny_heads import tiny_head
from tiny_models import tiny_model

from octavo.base.errors import ConfigError
from octavo.base.settings import EngineSettings
from octavo.cli import main
from octavo.engine import backends
from octavo.files.model_files import ModelFiles
from octavo.native.library import library
from octavo.verify.cells import CELLS, by_head
from octavo.verify.run import verify
from octavo.worker.native_runner import NativeRunner

WITHOUT_PROCESS = [cell for cell in CELLS if cell.name != "engine process"]
FLOAT32 = [("auto", "auto")]


def check(folder, cells=WITHOUT_PROCESS, formats=FLOAT32, **options):
    settings = EngineSettings.flat(
        model=str(folder), **({"dtype": "float32", "threads": 1} | options)
    )
    return verify(settings, ModelFiles("tiny", folder), formats, quick=True, cells=cells)


def outcomes(report):
    return {o.cell: o for column in report.columns for o in column.outcomes}


def cells(*names):
    return [cell for cell in CELLS if cell.name in names]


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "mixtral", "falcon_h1", "deepseek_v3"])
def test_every_cell_holds_on_native_models(family, tmp_path):
    tiny_model(tmp_path, family)
    report = check(tmp_path, formats=[("q8_0", "auto"), ("q8_0", "int8")])
    assert report.holds, report.text()
    assert len(report.columns) == (1 if family == "deepseek_v3" else 2)
    found = outcomes(report)
    not_here = [o for o in found.values() if not o.held]
    assert all("recurrent" in o.why_not for o in not_here), report.text()
    assert len(not_here) == (6 if family == "falcon_h1" else 0)
    assert found["batch of 32"].requests == 32
    assert found["batch of 32"].answers == 32 + 3 * 4  # four have four
    assert found["batch of 32"].tokens >= 43 * 6


def test_a_head_drafts_in_a_cell_of_its_own(tmp_path):
    tiny_model(tmp_path / "model", "qwen3", num_hidden_layers=5)
    tiny_head(tmp_path / "head")
    head = by_head(str(tmp_path / "head"))
    report = check(tmp_path / "model", formats=[("auto", "auto")], cells=[head])
    assert report.holds, report.text()
    assert outcomes(report)[head.name].held


@pytest.mark.parametrize("name,layer,where", [("down", 1, "op down"), ("o", 0, "op o")])
def test_a_kernel_that_adds_by_batch_is_named(name, layer, where, tmp_path, monkeypatch):
    """Token by token nothing is wrong; in a batch the first layer and op are told that wrote other
    bits."""
    tiny_model(tmp_path, "qwen3", num_hidden_layers=3)
    faulty = FaultyNative(library(), name, layer)
    monkeypatch.setattr(backends, "library", lambda: faulty)
    wrong = ("batch of 32", "preempted twice", "warm", "planned ahead", "drafts: ngram")
    report = check(tmp_path, cells("chunk of 1", *wrong))
    assert not report.holds
    found = outcomes(report)
    assert found["chunk of 1"].held  # there is one row a step
    for cell in wrong:
        failure = found[cell].failure
        assert failure and re.match(r"request \d+(, answer \d)?, position \d+: ", failure), failure
        assert re.search(rf"first seen at position \d+, layer {layer}, {where};", failure), failure
    assert "batch of 32" in report.text() and "NOT every cell holds" in report.text()


def test_torch_is_told_of_as_it_is(tmp_path):
    """Nothing is promised there; what fails is told by request and position."""
    tiny_model(tmp_path, "qwen3")
    report = check(tmp_path, cells("batch of 32", "warm"), model_impl="torch")
    [column] = report.columns
    assert column.info.runner == "torch cpu"
    for outcome in column.outcomes:
        assert outcome.why_not is None and outcome.requests > 10
        if outcome.failure:
            assert "torch cpu does not tell of its ops" in outcome.failure
            told = (
                r"\d+ of \d+ answers differ: (the same|other) tokens.*, logprobs up to \d.* apart"
            )
            assert re.search(told, outcome.failure), outcome.failure
    assert report.holds == all(outcome.held for outcome in column.outcomes)


def test_the_command_prints_and_writes_a_certificate(tmp_path, capsys):
    """With the engine process too; texts are asked where there is a tokenizer."""
    folder, file = tiny_chat_model(tmp_path / "tiny"), tmp_path / "report.json"
    options = ["--quick", "--kv-dtype", "auto", "--threads", "1", "--json", str(file)]
    assert main(["verify", str(folder), *options]) == 0
    printed = capsys.readouterr().out
    written = json.loads(file.read_text())
    [told] = written["formats"]
    assert [cell["cell"] for cell in told["cells"]] == [cell.name for cell in CELLS]
    assert all(cell["held"] for cell in told["cells"]) and written["holds"] and written["quick"]
    assert "certificate: every cell holds, bit for bit" in printed
    for name, fact in written["certificate"].items():
        assert re.search(rf"^{name} +{re.escape(fact)}$", printed, re.M)
    assert str(tmp_path) not in printed
    total = sum(cell["tokens"] for cell in told["cells"])
    assert f" {total:,} tokens" in written["certificate"]["compared"]


def test_formats_that_a_model_cannot_have_are_told(tmp_path):
    tiny_model(tmp_path, "deepseek_v3")
    report = check(tmp_path, cells("batch of 32"), [("auto", "auto"), ("auto", "int8")])
    assert report.holds, report.text()
    assert "int8 has no form for latents" in report.refused["auto, KV int8"]
    assert "auto, KV int8: " in report.text()
    with pytest.raises(ConfigError, match="latents"):
        check(tmp_path, cells("batch of 32"), [("auto", "int8")], model_impl="native")


def test_a_copy_of_a_block_that_loses_a_bit_is_found(tmp_path, monkeypatch):
    """Of what the cache gives, the first that shows is attention, in the layer that lost it."""
    tiny_model(tmp_path, "qwen3")
    copy = NativeRunner.copy

    def lossy(self, pool, sources, targets):
        copy(self, pool, sources, targets)
        self.pages(pool)[targets, 1] ^= 1  # of a mantissa, in layer 0's first key

    monkeypatch.setattr(NativeRunner, "copy", lossy)
    failure = outcomes(check(tmp_path, cells("partial hit")))["partial hit"].failure
    assert failure and "layer 0, op attention;" in failure


@pytest.mark.slow
def test_the_default_model(default_model, capsys):
    assert main(["verify", str(default_model.path), "--quick"]) == 0, capsys.readouterr().out
