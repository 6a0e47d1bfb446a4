"""The examples run, and say what they should, on the default model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from octavo.bench.online import own_server

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested_here():
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert all(f'"{name}"' in Path(__file__).read_text() for name in names)


def test_offline(default_model):
    lines = run("offline.py", str(default_model.path)).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("'The capital of France is' -> ")


def test_prefix_cache(default_model):
    found = re.findall(
        r"(\d+) of (\d+) prompt tokens", run("prefix_cache.py", str(default_model.path))
    )
    assert [int(cached) > int(prompt) // 2 for cached, prompt in found] == [False, True, True]


def test_speculation(default_model):
    plain, guessed = run("speculation.py", str(default_model.path)).splitlines()
    assert "0 of 0 guesses" in plain
    assert int(re.search(r"(\d+) of \d+ guesses", guessed)[1]) > 10
    assert all(line.endswith("the same as before: True") for line in (plain, guessed))


async def test_tools(default_model):
    flags = ["--kv-memory", "128MiB", "--max-model-len", "1024"]
    flags += ["--chat-template", str(EXAMPLES / "tools.jinja")]
    async with own_server(str(default_model.path), flags) as url:
        call, *answer = run("tools.py", url).splitlines()
        a, b, total = map(int, re.findall(r"\d+", call))
        assert (call.startswith("add("), a + b) == (True, total)
        assert answer


async def test_over_http(default_model):
    flags = ["--kv-memory", "128MiB", "--max-model-len", "1024"]
    async with own_server(str(default_model.path), flags) as url:
        assert "Tokyo" in run("chat_client.py", url)
        scores = [line.split() for line in run("score.py", url).splitlines()]
        assert scores[0][1] == "Tokyo."
        assert max(scores, key=lambda score: float(score[0])) == scores[0]
        made, closed, word = run("structured.py", url).splitlines()
        assert made.startswith("name=") and word in ("yes", "no")
        assert "length {'complete': True, 'closed_at': " in closed
        forked = run("fork.py", url)
        assert re.findall(r"(\d+) of \d+ prompt tokens computed", forked) == ["1"] * 3
        lines = forked.splitlines()
        assert all(line.startswith(lines[0][: line.index("[")]) for line in lines[1::2])
