"""Quality figures against the model's own in Transformers, and against plain sums."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from tiny_chat import tiny_chat_model
from tiny_models import tiny_model

from octavo.base.errors import CapacityError, ConfigError
from octavo.base.settings import EngineSettings
from octavo.bench import quality
from octavo.bench.quality import Quality, Tally, log_softmax, measure, passages, table
from octavo.cli import main
from octavo.engine.resolved import resolve
from octavo.files.model_files import ModelFiles

TEXTS = [
    np.random.default_rng(seed).integers(0, 512, length)
    for seed, length in enumerate((150, 40, 2, 3))
]
ON_CPU = EngineSettings.flat(device="cpu", threads=1)


@pytest.fixture
def steps_of_16(monkeypatch):
    monkeypatch.setattr(quality, "CHUNK", 16)


@pytest.mark.parametrize("family", ["llama", "qwen2_mixed"])
def test_the_reference_is_the_model_in_float32(family, tmp_path, steps_of_16):
    """`qwen2_mixed` has two KV groups in one pool."""
    model = tiny_model(tmp_path, family)
    [reference] = measure(ON_CPU, ModelFiles("tiny", tmp_path), [], TEXTS)
    with torch.inference_mode():
        losses = [
            torch.nn.functional.cross_entropy(
                model(torch.tensor(ids[None])).logits[0, :-1],
                torch.tensor(ids[1:]),
                reduction="sum",
            ).item()
            for ids in TEXTS
        ]
    mean = sum(losses) / sum(len(ids) - 1 for ids in TEXTS)
    assert reference.perplexity == pytest.approx(math.exp(mean), rel=1e-4)
    assert reference.weight_format == "f32"


def test_coarser_formats_are_farther_from_the_reference(tmp_path, steps_of_16):
    tiny_model(tmp_path, "llama")
    files = ModelFiles("tiny", tmp_path)
    found = measure(ON_CPU, files, ["none", "bf16", "q8_0", "q4_1"], TEXTS)
    reference, same, bf16, q8_0, q4_1 = found
    for exact in (reference, same):  # the file is in float32
        assert (exact.mean_kl, exact.p99_kl, exact.top1_agreement) == (0, 0, 1)
    assert same.perplexity == reference.perplexity
    assert 0 < bf16.mean_kl < q8_0.mean_kl < q4_1.mean_kl < q4_1.p99_kl
    assert 1 > bf16.top1_agreement > q8_0.top1_agreement > q4_1.top1_agreement > 0
    sizes = [q.weight_bytes for q in found]
    assert sizes[0] == sizes[1] > sizes[2] > sizes[3] > sizes[4]


def test_kv_has_formats_of_its_own(tmp_path, steps_of_16):
    tiny_model(tmp_path, "llama")
    files = ModelFiles("tiny", tmp_path)
    found = measure(ON_CPU, files, ["none"], TEXTS, ["auto", "float16", "int8"])
    assert [q.setting for q in found] == ["reference", "none", "none, KV float16", "none, KV int8"]
    reference, same, half, int8 = found
    assert same.mean_kl == 0 < half.mean_kl < int8.mean_kl < 0.1
    numbers, heads = 3 * 2 * 2 * 16, 3 * 2 * 2  # layers, K and V, heads, dim: 2 scales a head
    assert reference.kv_tokens == same.kv_tokens == 2**30 // (numbers * 4)
    assert (half.kv_tokens, int8.kv_tokens) == (
        2**30 // (numbers * 2),
        2**30 // (numbers + heads * 4),
    )


def test_figures_are_plain_sums(tmp_path):
    """Position by position as the formulas say, over chunks of which the last ends its text."""
    rng = np.random.default_rng(0)
    ours, reference = rng.normal(0, 3, (2, 9, 20)).astype(np.float32)
    following = rng.integers(0, 20, 8)
    tally = Tally()
    for start, stop in ((0, 4), (4, 9)):
        p, q = log_softmax(reference[start:stop]), log_softmax(ours[start:stop])
        tally.add(q, p, following[start:stop])
    tiny_model(tmp_path, "llama")
    found = tally.quality("some", resolve(ON_CPU, ModelFiles("tiny", tmp_path)))
    divergences, losses = [], []
    for n in range(9):
        p, q = ([math.exp(x) for x in row[n].tolist()] for row in (reference, ours))
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        divergences.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
        losses += [-math.log(q[following[n]])] if n < 8 else []
    assert found.mean_kl == pytest.approx(sum(divergences) / 9)
    assert found.p99_kl == pytest.approx(np.percentile(divergences, 99))
    assert found.perplexity == pytest.approx(math.exp(sum(losses) / 8))
    agreed = sum(a.argmax() == b.argmax() for a, b in zip(ours, reference, strict=True))
    assert found.top1_agreement == agreed / 9


def test_a_text_longer_than_the_context_is_cut(tmp_path):
    tiny_model(tmp_path, "llama", max_position_embeddings=24)
    files = ModelFiles("tiny", tmp_path)
    assert measure(ON_CPU, files, ["q8_0"], TEXTS[:1]) == measure(
        ON_CPU, files, ["q8_0"], [TEXTS[0][:24]]
    )


def test_what_is_impossible_is_refused(tmp_path, monkeypatch):
    tiny_model(tmp_path, "llama")
    files = ModelFiles("tiny", tmp_path)
    with pytest.raises(ConfigError, match=r"quantization must be one of .*, got 'q3_0'"):
        measure(ON_CPU, files, ["q3_0"], TEXTS)
    monkeypatch.setattr(quality, "free_memory", lambda device: 1000)
    with pytest.raises(CapacityError, match=r"2 formats .* 1000 B are free; name fewer"):
        measure(ON_CPU, files, ["q8_0"], TEXTS)


def test_twenty_passages():
    texts = passages()
    assert len(texts) == 20
    assert all(500 < len(text) < 1500 and text == text.strip() for text in texts.values())
    assert not any("===" in text for text in texts.values())


def test_table():
    found = [
        Quality("reference", "f32", 2**20, 1000, 0.0, 0.0, 1.0, 20.0),
        Quality("q8_0", "q8_0", 2**18, 2000, 0.00123, 0.0456, 0.987, 20.12),
    ]
    assert table(found).splitlines() == [
        "weights                   MiB  KV tok/GiB     mean KL     99 % KL     top-1 %  perplexity",
        "reference (f32)           1.0       1,000     0.00000     0.00000      100.00      20.000",
        "q8_0                      0.2       2,000     0.00123     0.04560       98.70      20.120",
    ]


def test_command(tmp_path, monkeypatch, capsys):
    folder = tiny_chat_model(tmp_path / "model")
    monkeypatch.setattr(quality, "passages", lambda: {"a": "The cat sat there.", "b": "Paris"})
    out = tmp_path / "quality.json"
    flags = ["--model", str(folder), "--threads", "1", "--quantization", "q8_0"]
    assert main(["bench", "quality", *flags, "--quantization", "auto", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    names = ["reference", "q8_0", "auto"]
    assert [found["setting"] for found in report["settings"]] == names
    assert report["passages"] == 2 and report["tokens"] > 2 and report["machine"]["cpu"]
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[1:]] == names


def test_a_folder_that_is_missing_is_named(capsys):
    assert main(["bench", "quality", "--json", "/no/such/folder/x.json"]) == 1
    assert "--json" in capsys.readouterr().err
