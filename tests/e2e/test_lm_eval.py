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
import yaml
from tiny_chat import tiny_chat_model

from octavo.bench.online import own_server

pytestmark = [
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


def write_tasks(folder: Path) -> None:
    tails = [text[len(text) // 2 :] for text in TEXTS]
    documents = [
        {
            "text": text,
            "head": text[: len(text) // 2],
            "tail": tail,
            "choices": [tail, *(other[:9] for other in tails if other != tail)],
            "answer": i % len(tails),
        }
        for i, (text, tail) in enumerate(zip(TEXTS, tails, strict=True))
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
    done = subprocess.run(
        command, env=os.environ | OFFLINE | cache, capture_output=True, text=True, timeout=280
    )
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
        ours, our_samples = evaluate(tmp_path, "local-completions", arguments)
    print(json.dumps({"hf": theirs, "local-completions": ours}, indent=1))
    for name, fields in TASKS.items():
        for metric in fields["metrics"]:
            found, expected = (scores[name][f"{metric},none"] for scores in (ours, theirs))
            assert found == pytest.approx(expected, rel=1e-4), (name, metric)
        for mine, other in zip(our_samples[name], their_samples[name], strict=True):
            if name == "written":
                assert mine["resps"] == other["resps"]
            else:
                assert_same(mine["resps"], other["resps"])


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    """Loglikelihoods, and whether each was what greedy drawing would give."""
    assert json.dumps(ours) and len(ours) == len(theirs)
    print(ours, theirs)
