"""What the doctor finds in a model: a healthy one, and one for each way of being ill."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from tiny_chat import TEMPLATE, tiny_chat_model

from octavo.base.errors import ModelError
from octavo.base.settings import ServerSettings
from octavo.cli import main
from octavo.doctor import logits, machine, model
from octavo.doctor.place import place_findings
from octavo.doctor.text import TALKS, text_findings
from octavo.engine import build
from octavo.fallback.truth import TrueText
from octavo.files.model_files import ModelFiles
from octavo.serve.run import bind
from octavo.text.renderer import load_renderer

VOCAB = 640


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return tiny_chat_model(tmp_path_factory.mktemp("healthy"))


@pytest.fixture
def folder(tmp_path):
    """One to be made ill."""
    return tiny_chat_model(tmp_path / "tiny")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "octavo"


def examined(capsys, folder, *flags):
    """(exit code, finding's name -> its level and text, the whole report)"""
    code = main(["doctor", str(folder), "--port", "0", "--threads", "1", *flags])
    report = capsys.readouterr().out
    lines = re.findall(r"^(ok|warning|wrong) +(\S+(?: \S+)*)  +(.*)$", report, re.M)
    return code, {name: (level, text) for level, name, text in lines}, report


def test_a_healthy_model(healthy, capsys, cache):
    code, found, report = examined(capsys, healthy)
    assert code == 0, report
    assert {level for level, _ in found.values()} == {"ok"}, report
    assert set(found) == {
        "port", "cache folder", "left over", "permissions", "memory", "round trip", "token ids",
        "special tokens", "end of answer", "chat template", "logits", "logits as served",
    }  # fmt: skip
    assert report.endswith("\nAll is well.\n")
    assert "computed by" in report and "top-1 100.0 %" in found["logits"][1]
    assert str(cache) not in report and sys.executable not in report


def test_without_transformers_and_without_a_tokenizer(healthy, folder, capsys, monkeypatch):
    monkeypatch.setattr(model, "find_spec", lambda name: None)
    code, found, _ = examined(capsys, healthy)
    assert code == 0 and found["Transformers"][0] == "warning"
    assert "logits" not in found and found["round trip"][0] == "ok"
    (folder / "tokenizer.json").unlink()
    code, found, report = examined(capsys, folder)
    assert code == 1 and found["tokenizer"][0] == "wrong"
    assert report.endswith("\n1 wrong, 1 to be warned of.\n")
    code, found, _ = examined(capsys, folder, "--skip-tokenizer-init")
    assert code == 0 and "tokenizer" not in found


def test_what_does_not_fit_or_cannot_run(healthy, capsys, monkeypatch):
    monkeypatch.setattr(build, "free_memory", lambda device: 2**10)
    code, found, report = examined(capsys, healthy)
    assert code == 1 and found["memory"][0] == "wrong" and "are free" in found["memory"][1]
    monkeypatch.setattr(machine, "library", lambda: (_ for _ in ()).throw(ImportError("none")))
    code, found, report = examined(capsys, healthy)
    assert code == 1 and list(found) == ["native"] and "cannot run" in report


def test_a_model_that_is_not_understood(folder, capsys):
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "unheard_of"}
    (folder / "config.json").write_text(json.dumps(config))
    code, found, _ = examined(capsys, folder, "--model-impl", "native")
    assert code == 1 and found["model"][0] == "wrong" and "unheard_of" in found["model"][1]


def test_logits_that_are_not_those_of_transformers(healthy, capsys, monkeypatch):
    right = logits.ours
    monkeypatch.setattr(logits, "ours", lambda *of: [x * 1.2 for x in right(*of)])
    code, found, _ = examined(capsys, healthy)
    assert code == 1 and found["logits"][0] == "wrong"
    assert found["logits as served"][0] in ("ok", "warning")
    monkeypatch.setattr(logits, "ours", lambda *of: [np.nan * x for x in right(*of)])
    code, found, _ = examined(capsys, healthy)
    assert code == 1 and found["logits"][0] == "wrong" and "nan" in found["logits"][1]
    monkeypatch.setattr(logits, "free_memory", lambda device: 0)
    code, found, _ = examined(capsys, healthy)
    assert code == 0 and found["logits"][0] == "warning" and "not compared" in found["logits"][1]


class Other:
    """A truth that differs where it is told to."""

    def __init__(self, truth, guesses=False, ids=(), text=""):
        self._truth, self.guesses, self._ids, self._text = truth, guesses, list(ids), text

    def encode(self, text):
        return self._truth.encode(text) + self._ids

    def chat(self, messages):
        if messages == TALKS["a system message"]:
            raise ModelError("no system message")
        text, ids = self._truth.chat(messages)
        return text + self._text, ids + self._ids


def of_text(folder, vocab_size=VOCAB, eos=(2,), **other):
    renderer = load_renderer(ModelFiles("tiny", folder))
    truth = Other(TrueText(ModelFiles("tiny", folder), False), **other) if other else None
    return {f.name: f for f in text_findings(renderer, vocab_size, eos, truth)}


def write_config(folder, **changes):
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_ids_and_texts_that_differ(folder):
    refusing = TEMPLATE.replace("{% for", "{% if messages[0].role == 'system' %}{{ 1 // 0 }}"
                                "{% endif %}{% for", 1)  # fmt: skip
    write_config(folder, chat_template=refusing)
    same = of_text(folder, text="")
    assert same["chat template"].level == "ok"
    assert "2 conversations" in same["chat template"].text
    assert "both refuse a system message" in same["chat template"].text
    for guesses, level in ((False, "wrong"), (True, "warning")):
        found = of_text(folder, guesses=guesses, ids=[5])
        assert found["token ids"].level == found["chat template"].level == level
        assert "three turns" in found["chat template"].text
        text = of_text(folder, guesses=guesses, text=" ")["chat template"]
        assert text.level == "wrong" and "writes" in text.text


def test_a_template_that_is_missing_or_writes_bos_again(folder):
    template = "<|im_start|>" + TEMPLATE
    write_config(folder, bos_token="<|im_start|>", chat_template=template)
    assert of_text(folder)["BOS"].level == "wrong"
    write_config(folder, chat_template=TEMPLATE)
    found = of_text(folder)
    assert found["BOS"].level == "ok" and "1 before a chat" in found["BOS"].text
    write_config(folder, chat_template=None)
    assert of_text(folder)["chat template"].level == "warning"


def test_special_tokens(folder):
    eos = load_renderer(ModelFiles("tiny", folder)).tokenizer.eos_token_id
    assert of_text(folder, eos=(eos,))["end of answer"].level == "ok"
    assert of_text(folder, eos=(eos + 1,))["end of answer"].level == "warning"
    assert of_text(folder, eos=())["end of answer"].level == "warning"
    assert of_text(folder, vocab_size=eos)["special tokens"].level == "wrong"
    write_config(folder, pad_token="<|unheard of|>")
    found = of_text(folder)["special tokens"]
    assert found.level == "warning" and found.text.endswith(": pad_token")


def surroundings(folder, cache, port=0):
    server = ServerSettings(port=port)
    return {f.name: f for f in place_findings(ModelFiles("tiny", folder), server, cache)}


def test_a_port_in_use(healthy, cache):
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        found = surroundings(healthy, cache, taken.getsockname()[1])
    assert found["port"].level == "warning" and "--port" in found["port"].advice


def test_a_cache_that_cannot_be_written(healthy, tmp_path):
    (tmp_path / "file").touch()
    assert surroundings(healthy, tmp_path / "file")["cache folder"].level == "warning"


def test_what_interrupted_pulls_and_starts_left(healthy, cache):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (cache / "packed").mkdir(parents=True)
    for name in (f"a.2.{ended.pid}", f"b.2.{os.getpid()}", "c.2.packed"):
        (cache / "packed" / name).touch()
    (cache / "models" / "m.partial").mkdir(parents=True)
    left = surroundings(healthy, cache)["left over"]
    assert left.level == "warning" and left.text == f"a.2.{ended.pid}, m.partial"


def test_permissions(folder, cache, monkeypatch):
    file = folder / "tokenizer.json"
    file.chmod(0o646)
    found = surroundings(folder, cache)["permissions"]
    assert found.level == "warning" and "tokenizer.json" in found.text
    monkeypatch.setattr(os, "access", lambda path, mode: path != file)  # root may read all
    found = surroundings(folder, cache)["permissions"]
    assert found.level == "wrong" and found.text == "cannot be read: tokenizer.json"


@pytest.mark.slow
def test_the_default_model_is_healthy(default_model, capsys):
    code, found, report = examined(capsys, default_model.path)
    assert code == 0, report
    assert found["logits"][0] == found["logits as served"][0] == "ok"
