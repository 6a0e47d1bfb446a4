"""lm-eval gives the same scores over HTTP as by its own Hugging Face backend.

It comes with the extra `eval`; `make conformance` installs it and runs this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_chat import tiny_chat_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from octavo.bench.online import own_server

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-eval is not installed"),
]
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
TEXTS = [
    "The capital of France is Paris, and the capital of Germany is Berlin.",
    "def total(values):\n    return sum(value for value in values if value > 10)\n",
    "Ünïcödé wörds and 你好世界 and emoji 😀👩‍👩‍👧 in one line; 1234567890 tabs\tand   spaces.",
    "The cat sat there. " * 8,
]
# What differs from task to task; documents are the texts, cut in the middle.
TASKS: dict[str, dict[str, Any]] = {
    "choices": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{head}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "metrics": ["acc", "acc_norm"],
    },
    "endings": {
        "output_type": "loglikelihood",
        "doc_to_text": "{{head}}",
        "doc_to_target": "{{tail}}",
        "metrics": ["perplexity", "acc"],
    },
    "whole": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metrics": ["word_perplexity", "byte_perplexity", "bits_per_byte"],
    },
    "written": {
        "output_type": "generate_until",
        "doc_to_text": "{{head}}",
        "doc_to_target": "{{tail}}",
        "metrics": ["exact_match"],
        "generation_kwargs": {"until": ["\n\n"], "do_sample": False, "max_gen_toks": 12},
    },
}


def greedy_ending(model: Path) -> tuple[str, str]:
    """A text and the model's likeliest next token, which the two of them are cut into."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    for text in (whole[:end] for whole in TEXTS for end in range(4, len(whole))):
        ids = tokenizer.encode(text)
        with torch.no_grad():
            best = int(network(torch.tensor([ids])).logits[0, -1].argmax())
        tail = tokenizer.decode([best])
        if text == text.rstrip() and tokenizer.encode(text + tail) == [*ids, best]:
            return text, tail
    raise AssertionError("no text has such an ending")


def write_tasks(folder: Path) -> None:
    cuts = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in TEXTS]
    cuts.append(greedy_ending(folder / "model"))
    documents = [
        {
            "text": head + tail,
            "head": head,
            "tail": tail,
            "choices": [tail, *(other[:9] for _, other in cuts if other != tail)],
            "answer": len(cuts) - 1 - i,
        }
        for i, (head, tail) in enumerate(cuts)
    ]
    lines = "".join(json.dumps(document) + "\n" for document in documents)
    (folder / "documents.jsonl").write_text(lines)
    for name, fields in TASKS.items():
        task = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(folder / "documents.jsonl")}},
            "test_split": "test",
            "target_delimiter": "",
            "metric_list": [{"metric": metric} for metric in fields["metrics"]],
            **{key: value for key, value in fields.items() if key != "metrics"},
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(task))


def evaluate(folder: Path, model: str, arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores by task, and what the model answered by task and document."""
    out = folder / model
    command = [sys.executable, "-m", "lm_eval", "--model", model, "--model_args", arguments]
    command += ["--tasks", ",".join(TASKS), "--include_path", str(folder), "--log_samples"]
    command += ["--output_path", str(out), "--device", "cpu", "--batch_size", "1"]
    cache = {"HF_HOME": str(folder / "cache")}
    done = subprocess.run(command, env=os.environ | OFFLINE | cache, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    [results] = out.rglob("results_*.json")
    samples = {name: _lines(next(out.rglob(f"samples_{name}_*"))) for name in TASKS}
    return json.loads(results.read_text())["results"], samples


def _lines(file: Path) -> list[Any]:
    """By document."""
    found = [json.loads(line) for line in file.read_text().split("\n") if line]
    return sorted(found, key=lambda sample: sample["doc_id"])


async def test_the_same_scores_as_by_transformers(tmp_path: Path) -> None:
    model = tmp_path / "model"
    tiny_chat_model(model)
    write_tasks(tmp_path)
    theirs, their_samples = evaluate(tmp_path, "hf", f"pretrained={model},dtype=float32")
    flags = ["--dtype", "float32", "--kv-memory", "32MiB", "--served-model-name", "tiny"]
    async with own_server(str(model), flags) as url:
        arguments = f"model=tiny,base_url={url}/v1/completions,tokenizer={model},max_length=512"
        arguments += ",num_concurrent=4"
        ours, our_samples = evaluate(tmp_path, "local-completions", arguments)
    print(json.dumps({"hf": theirs, "local-completions": ours}, indent=1))
    for name, fields in TASKS.items():
        for metric in fields["metrics"]:
            found, expected = (scores[name][f"{metric},none"] for scores in (ours, theirs))
            assert found == pytest.approx(expected, rel=1e-4), (name, metric)
        for mine, other in zip(our_samples[name], their_samples[name], strict=True):
            assert_alike(mine["resps"], other["resps"])
    assert any("True" in str(sample["resps"]) for sample in our_samples["endings"])


def assert_alike(ours: Any, theirs: Any) -> None:
    """Written texts; loglikelihoods, and whether each is of what greedy drawing would give."""
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_alike(one, other)
    elif ours != theirs:
        assert float(ours) == pytest.approx(float(theirs), abs=1e-3)
