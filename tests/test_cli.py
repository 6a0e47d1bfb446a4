"""The command: what it imports, what it prints where, how it fails."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tiny_chat import tiny_chat_model

from octavo.base.flags import spell
from octavo.base.settings import EngineSettings
from octavo.cli import ENGINE_PARTS, _parser, main, take


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_chat_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def flags(folder):
    return ["--kv-memory", "8MiB", "--threads", "1", "--temperature", "0", "--max-tokens", "5"]


def run(*arguments, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "octavo", *arguments], input=stdin, capture_output=True, text=True
    )


def test_help_needs_the_standard_library_only():
    check = (
        "import sys; from octavo.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'msgspec', 'zmq', 'fastapi', 'tokenizers', 'torch', 'asyncio'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)


def test_text_goes_to_stdout_and_notes_to_stderr(folder, flags):
    done = run("generate", "--model", str(folder), *flags, "The capital", "The cat")
    assert done.returncode == 0, done.stderr
    assert "KV total" in done.stderr
    assert "KV total" not in done.stdout
    assert done.stdout.count("\n") >= 2


def test_json_has_everything_for_prompts_from_file_and_stdin(folder, flags, tmp_path, capsys):
    prompts = tmp_path / "prompts"
    prompts.write_text("one\ntwo\n")
    common = ["generate", "--model", str(folder), *flags, "--json"]
    assert main([*common, "--file", str(prompts)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["prompt"] for line in lines] == ["one", "two"]
    assert all(len(line["outputs"][0]["token_ids"]) == 5 for line in lines)
    done = run(*common, stdin="from stdin\n")
    assert json.loads(done.stdout)["prompt"] == "from stdin"


def test_a_refused_prompt_costs_the_others_nothing(folder, flags, capsys):
    assert main(["generate", "--model", str(folder), *flags, "fine", "x " * 2000]) == 1
    captured = capsys.readouterr()
    assert captured.out.strip()
    assert "octavo: prompt has" in captured.err


def test_chat_remembers_and_can_begin_anew(folder, flags):
    done = run("chat", str(folder), *flags, stdin="hello\n\nagain\n/reset\nhello\n")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert answers[0] == answers[-1]


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["generate", "--model", "no-such-model", "hi"], "no-such-model"),
        (["generate", "--model", "/nowhere", "hi"], "no such folder: /nowhere"),
        (["pull", "unknown"], "smollm2"),
        (["generate", "--kv-memory", "lots", "hi"], "'lots' is no amount of memory"),
        (["generate", "--max-num-batched-tokens", "3", "hi"], "max_num_batched_tokens"),
        (["generate", "--file", "/nowhere", "hi"], "--file /nowhere"),
        (["bench", "throughput", "--workload", "none"], "known are single, mixed"),
        (["bench", "throughput", "--repeats", "0"], "--repeats must be at least 1"),
        (["bench", "serve", "--url", "http://127.0.0.1:1"], "no server at 127.0.0.1:1"),
        (["serve", "--seed", "9" * 30], "seed must be at most"),
        (["serve", "--max-body-bytes", "0"], "max_body_bytes must be at least 1"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, message, folder, capsys):
    if "--model" not in arguments and arguments[0] == "generate":
        arguments = [*arguments, "--model", str(folder)]
    assert main(arguments) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("octavo: ")
    assert message in last


@pytest.mark.parametrize("command", ["serve", "chat"])
def test_a_model_may_be_named_with_its_flag_or_without(command):
    read = _parser().parse_args
    assert read([command]).model == "smollm2"
    assert read([command, "gemma3-270m"]).model == "gemma3-270m"
    assert read([command, "--model", "gemma3-270m", "--seed", "1"]).model == "gemma3-270m"


def test_a_seed_is_one_for_all_prompts(folder, capsys):
    def answers(*more):
        command = ["generate", "hi", "hi", "--model", str(folder), "--json", "--temperature", "1.5"]
        flags = ["--presence-penalty", "0.5", "--frequency-penalty", "-0.5", "--max-tokens", "8"]
        assert main([*command, *flags, *more]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(one["seed"], one["outputs"][0]["token_ids"]) for one in found]

    first, other = answers()
    assert first != other
    assert answers("--seed", str(first[0])) == [first, first]


def test_flags_are_not_abbreviated(capsys):
    """Or a new flag would change what an old command means."""
    with pytest.raises(SystemExit):
        main(["serve", "--model-i", "torch"])
    assert "unrecognized arguments: --model-i" in capsys.readouterr().err


def test_flags_and_settings_are_inverse():
    settings = EngineSettings.flat(
        model="m", kv_memory="1GiB", prefix_caching=False, watermark=0.5, seed=7, policy="priority"
    )
    words = ["serve", "m", *spell(settings.options())]
    assert EngineSettings.flat(**take(_parser().parse_args(words), *ENGINE_PARTS)) == settings


def test_models_fails_where_a_model_runs_by_no_way(folder, tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "gpt9"}')
    assert main(["models", str(folder)]) == 0
    assert "--model-impl native        yes" in capsys.readouterr().out
    assert main(["models", str(tmp_path), str(folder)]) == 1
    said = capsys.readouterr().out
    assert "--model-impl native        no: 'gpt9' is no type of model" in said
    assert "--model-impl torch         no: as above" in said
    assert main(["models", "nonsense"]) == 1
    assert "unknown model 'nonsense'" in capsys.readouterr().out
