"""The `octavo` command. Imports what a subcommand needs when it runs, so `--help` is quick."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.base.errors import ConfigError, OctavoError
from octavo.base.flags import add_flags, take
from octavo.base.settings import (
    CacheSettings,
    EngineSettings,
    ModelSettings,
    SchedulerSettings,
    ServerSettings,
    SpeculationSettings,
    checked,
)

if TYPE_CHECKING:
    from octavo.base.sampling_params import SamplingParams
    from octavo.llm import LLM

ENGINE_PARTS = (
    ModelSettings,
    CacheSettings,
    SchedulerSettings,
    SpeculationSettings,
    EngineSettings,
)
NOT_FOR_VERIFY = ("quantization", "max_model_len", "chat_template", "skip_tokenizer_init")
NOT_FOR_QUALITY = (
    "quantization",
    "device",
    "load_format",
    "max_model_len",
    "chat_template",
    "skip_tokenizer_init",
    "max_logprobs",
    "logprobs_mode",
    "logits_processors",
)
SAMPLING_FLAGS: dict[str, type] = {
    "max_tokens": int,
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read our output has gone; nor must Python's last flush complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def serve(options: argparse.Namespace) -> int:
    from octavo.serve.run import serve as run

    server_settings = checked(ServerSettings(**take(options, ServerSettings)))
    return run(_engine_settings(options), server_settings)


def chat(options: argparse.Namespace) -> None:
    from octavo.chat import converse

    llm = _llm(options)
    converse(llm, _sampling(options, llm), options.system)


def generate(options: argparse.Namespace) -> int:
    prompts = list(_prompts(options))
    if not prompts:
        raise ConfigError("no prompt: give one, or --file, or write to standard input")
    llm = _llm(options)
    params = _sampling(options, llm)
    if options.chat:
        outputs = llm.chat([[{"role": "user", "content": text}] for text in prompts], params)
    else:
        outputs = llm.generate(prompts, params)
    for output in outputs:
        if options.json:
            from msgspec import to_builtins

            print(json.dumps(to_builtins(output), ensure_ascii=False))
        else:
            print(output.outputs[0].text)
        if output.error is not None:
            print(f"octavo: {output.error}", file=sys.stderr)
    return int(any(output.error for output in outputs))


def pull(options: argparse.Namespace) -> None:
    from octavo.files.locate import locate

    print(locate(options.name, accept_license=options.accept_license).path)


def models(options: argparse.Namespace) -> int:
    from octavo.engine import catalogue
    from octavo.files.locate import locate

    if not options.names:
        print(catalogue.markdown() if options.markdown else catalogue.text(), end="")
        return 0
    failed = 0
    for name in options.names:
        try:
            found = catalogue.examine(locate(name))
        except OctavoError as error:
            print(f"{name}: {error}")
            failed = 1
        else:
            print(found)
            failed |= not found.runs
    return failed


def doctor(options: argparse.Namespace) -> int:
    if options.examined is None:
        from octavo.doctor.machine import examine

        return examine()
    from octavo.doctor.model import examine_model

    options.model = options.examined
    return examine_model(
        _engine_settings(options), checked(ServerSettings(**take(options, ServerSettings)))
    )


def verify(options: argparse.Namespace) -> int:
    from octavo.verify.run import run

    return run(options)


def bench(options: argparse.Namespace) -> None:
    from octavo.bench.run import run

    run(options, _engine_settings(options))


def profile(options: argparse.Namespace) -> None:
    from octavo.bench.run import profile as run

    run(options, _engine_settings(options))


def steps(options: argparse.Namespace) -> None:
    from octavo.bench.steps import run

    run(options, _engine_settings(options))


def turns(options: argparse.Namespace) -> None:
    from octavo.bench.turns import run

    run(options, _engine_settings(options))


def drafts(options: argparse.Namespace) -> None:
    from octavo.bench.drafts import run

    run(options, _engine_settings(options))


def structured(options: argparse.Namespace) -> None:
    from octavo.bench.structured import run

    run(options, _engine_settings(options))


def limits(options: argparse.Namespace) -> None:
    from octavo.bench.limits import run

    run(options)


def sampling(options: argparse.Namespace) -> None:
    from octavo.bench.sampling import run

    run(options)


def quality(options: argparse.Namespace) -> None:
    from octavo.bench.quality import run

    run(options)


def _parser() -> argparse.ArgumentParser:
    from octavo import __version__

    top = argparse.ArgumentParser(
        prog="octavo", description="LLM inference and serving from a paged KV cache."
    )
    top.add_argument("--version", action="version", version=f"octavo {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    sub = _command(commands, "serve", serve, "serve the OpenAI API over HTTP")
    _add_engine(sub)
    add_flags(sub, ServerSettings)
    sub = _command(commands, "chat", chat, "talk to a model in the terminal")
    sub.add_argument("--system", help="system message")
    _add_sampling(sub, max_tokens=1024)
    _add_engine(sub, skip=("seed",))
    sub = _command(commands, "generate", generate, "continue prompts")
    sub.add_argument("prompts", nargs="*", metavar="PROMPT", help="text; - reads standard input")
    sub.add_argument("--file", help="file with a prompt on each line")
    sub.add_argument("--chat", action="store_true", help="prompts are a user's messages")
    sub.add_argument("--json", action="store_true", help="one JSON object a line, with everything")
    _add_sampling(sub, max_tokens=128)
    _add_engine(sub, positional=False, skip=("seed",))
    sub = _command(commands, "pull", pull, "fetch a model and print where it lies")
    sub.add_argument("name", nargs="?", default="smollm2", help="short name or hub id")
    sub.add_argument("--accept-license", action="store_true", help="agree to the model's terms")
    sub = _command(commands, "models", models, "what runs, by which way, and why not")
    sub.add_argument(
        "names",
        nargs="*",
        metavar="MODEL",
        help="short names, folders, files or hub ids; default: all kinds that are known",
    )
    sub.add_argument("--markdown", action="store_true", help="the tables of docs/models.md")
    _add_doctor(_command(commands, "doctor", doctor, "what is here, and what Octavo makes of it"))
    _add_verify(_command(commands, "verify", verify, "same bits, however requests are scheduled?"))
    _add_bench(_command(commands, "bench", bench, "measure speed and quality"))
    return top


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, allow_abbrev=False
    )
    parser.set_defaults(run=run)
    return parser


def _add_engine(
    parser: argparse.ArgumentParser, positional: bool = True, skip: Sequence[str] = ()
) -> None:
    """`positional`: the model may be given without its flag too."""
    if positional:
        _add_model(parser)
    for part in ENGINE_PARTS:
        add_flags(parser, part, skip)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", default=argparse.SUPPRESS, metavar="MODEL", help="as --model"
    )


def _add_bench(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(title="kinds", required=True, dest="kind", metavar="KIND")
    for kind, workload, text in (
        ("throughput", "mixed", "a workload through LLM, all at once"),
        ("latency", "single", "a workload one request after another, token by token"),
        ("serve", "mixed", "a workload over HTTP, all at once, streaming"),
    ):
        sub = kinds.add_parser(kind, help=text, description=text, allow_abbrev=False)
        sub.add_argument(
            "--workload", action="append", help=f"may be given several times; default: {workload}"
        )
        sub.set_defaults(default_workload=workload)
        sub.add_argument("--repeats", type=int, default=3, help="timed runs; medians are shown")
        sub.add_argument("--json", metavar="FILE", help="write the figures here too")
        if kind == "serve":
            sub.add_argument("--url", help="a server that runs already; default: start one")
        _add_engine(sub, positional=False)
    sub = _command(kinds, "profile", profile, "where the time of a workload goes, op by op")
    sub.add_argument("--workload", default="mixed", help="default: %(default)s")
    _add_engine(sub, positional=False)
    sub = _command(kinds, "steps", steps, "how a step grows with rows and with context")
    sub.add_argument("--repeats", type=int, default=3, help="runs of which medians are taken")
    sub.add_argument("--json", metavar="FILE", help="write the figures here too")
    _add_engine(sub, positional=False)
    sub = _command(kinds, "turns", turns, "a conversation's next first token, warm and cold")
    sub.add_argument("--repeats", type=int, default=3, help="conversations; medians are taken")
    sub.add_argument("--json", metavar="FILE", help="write the figures here too")
    _add_engine(sub, positional=False)
    sub = _command(kinds, "drafts", drafts, "answers that copy, with and without speculation")
    sub.add_argument(
        "--speculations",
        action="append",
        metavar="WAY",
        help="as in serving, may be repeated; default: ngram",
    )
    sub.add_argument("--repeats", type=int, default=3, help="runs of which medians are taken")
    sub.add_argument("--json", metavar="FILE", help="write the figures here too")
    _add_engine(sub, positional=False)
    sub = _command(kinds, "structured", structured, "what answers of a structure cost")
    sub.add_argument("--rows", type=int, default=16, help="answers at once; default: %(default)s")
    sub.add_argument("--repeats", type=int, default=5, help="rounds of which medians are taken")
    sub.add_argument("--json", metavar="FILE", help="write the figures here too")
    _add_engine(sub, positional=False)
    sub = _command(kinds, "limits", limits, "what this machine can multiply and read at most")
    sub.add_argument("--threads", type=int, help="up to how many; default: the usable cores")
    sub.add_argument("--json", metavar="FILE", help="write the figures here too")
    sub = _command(kinds, "sampling", sampling, "what drawing a step's tokens costs")
    sub.add_argument("--rows", type=int, default=64, help="sequences; default: %(default)s")
    sub.add_argument("--threads", type=int, help="default: the usable cores")
    sub.add_argument("--repeats", type=int, default=20, help="steps of which the quickest counts")
    sub.add_argument("--json", metavar="FILE", help="write the figures here too")
    sub = _command(kinds, "quality", quality, "what formats of weights and KV cost in answers")
    _add_formats(sub, "auto, bf16, q8_0, q5_1, q4_1", "auto")
    sub.add_argument("--json", metavar="FILE", help="write the figures here too")
    add_flags(sub, ModelSettings, skip=NOT_FOR_QUALITY)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    """All that `serve` takes, as what is to be served is looked at."""
    parser.add_argument(
        "examined", nargs="?", metavar="MODEL", help="a model to look at too; default: none"
    )
    for part in (*ENGINE_PARTS, ServerSettings):
        add_flags(parser, part, skip=("model",))


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--quick", action="store_true", help="shorter prompts, fewer KV formats")
    _add_formats(parser, "auto", "all, or with --quick auto and int8")
    parser.add_argument("--eagle", metavar="HEAD", help="a head that shall draft in one more cell")
    parser.add_argument("--json", metavar="FILE", help="write the report here too")
    add_flags(parser, ModelSettings, skip=NOT_FOR_VERIFY)


def _add_formats(parser: argparse.ArgumentParser, quantizations: str, kv_dtypes: str) -> None:
    """Flags that may be repeated; their defaults in words."""
    parser.add_argument(
        "--quantization",
        action="append",
        dest="quantizations",
        metavar="FORMAT",
        help=f"as in serving, may be repeated; default: {quantizations}",
    )
    parser.add_argument(
        "--kv-dtype",
        action="append",
        dest="kv_dtypes",
        metavar="DTYPE",
        help="as in serving, each with each format of weights, may be repeated; "
        f"default: {kv_dtypes}",
    )


def _add_sampling(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    group = parser.add_argument_group("sampling", "what is not given is the model's own default")
    for name, kind in SAMPLING_FLAGS.items():
        default = max_tokens if name == "max_tokens" else None
        group.add_argument("--" + name.replace("_", "-"), type=kind, default=default)
    group.add_argument("--stop", action="append", help="end where this text appears")
    group.add_argument(
        "--seed",
        type=int,
        default=argparse.SUPPRESS,
        help="of the noise, the same for every prompt; default: each has another",
    )


def _engine_settings(options: argparse.Namespace) -> EngineSettings:
    return EngineSettings.flat(**take(options, *ENGINE_PARTS))


def _llm(options: argparse.Namespace) -> LLM:
    from octavo.base.log import configure
    from octavo.llm import LLM

    configure()
    llm = LLM(**take(options, *ENGINE_PARTS))
    print(llm.info.table, file=sys.stderr)
    return llm


def _sampling(options: argparse.Namespace, llm: LLM) -> SamplingParams:
    from octavo.base.sampling_params import SamplingParams

    names = (*SAMPLING_FLAGS, "stop", "seed")
    given = {name: getattr(options, name, None) for name in names}
    wanted = {name: value for name, value in given.items() if value is not None}
    return SamplingParams(**(llm.info.generation_defaults | wanted))


def _prompts(options: argparse.Namespace) -> Iterable[str]:
    for prompt in options.prompts:
        yield sys.stdin.read() if prompt == "-" else prompt
    if options.file:
        try:
            yield from Path(options.file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--file {options.file}: {error}") from error
    if not options.prompts and not options.file and not sys.stdin.isatty():
        yield from filter(None, [sys.stdin.read().rstrip("\n")])
