"""`octavo bench drafts`: answers that copy from their prompts, with and without speculation.

Prompts are files of this package, to be edited, and what its docstrings say, to be quoted. All ways
take turns, so that a slow minute of the machine meets them alike; their answers must be equal.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import octavo
from octavo.base.errors import EngineError
from octavo.base.log import configure
from octavo.base.output import EngineStats
from octavo.base.progress import progress
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import EngineSettings
from octavo.bench.report import check_json, check_repeats, machine, write_json
from octavo.llm import LLM

TOKENS = 192  # of an answer, at most
CHARACTERS = 1400  # of a prompt's text
FILES = (
    "base/units",
    "bench/roofline",
    "core/moves",
    "core/policies",
    "core/queue",
    "core/state_blocks",
    "files/locate",
    "text/stop_strings",
)
TASKS = {
    "edit": "Rewrite this file with a type hint for each argument. Answer with the file alone.",
    "quote": "Summarize this text by quoting its sentences word by word, in their order.",
}


@dataclass(frozen=True)
class Speed:
    """Medians over the runs of one task."""

    task: str
    users: int
    way: str
    tokens_per_second: float
    ratio: float  # to the same without speculation, run by run
    accepted: float  # share of drafts
    per_step: float  # tokens of a row


def run(options: argparse.Namespace, settings: EngineSettings) -> None:
    """Measure, print, and write a file if asked."""
    configure()
    check_repeats(options.repeats)
    check_json(options.json)
    ways = {way: _llm(settings, way) for way in ("off", *(options.speculations or ["ngram"]))}
    found: list[Speed] = []
    with progress(len(TASKS) * 2 * options.repeats, "drafts", " rounds") as bar:
        for task in TASKS:
            for users in (1, 8):
                rounds = []
                for _ in range(options.repeats):
                    rounds.append(_round(ways, task, users))
                    bar.update()
                found += _speeds(task, users, rounds)
    print(table(found))
    write_json(options.json, {"machine": machine(), "speeds": [asdict(speed) for speed in found]})


@dataclass(frozen=True)
class _Run:
    tokens: int
    seconds: float
    drafts: int
    accepted: int


def _llm(settings: EngineSettings, way: str) -> LLM:
    wanted = settings.options() | {"speculation": way, "prefix_caching": False}
    return LLM(settings.model.model, **wanted)


def _round(ways: dict[str, LLM], task: str, users: int) -> dict[str, _Run]:
    """One run of each way. Raises EngineError where answers differ."""
    runs, answers = {}, {}
    for way, llm in ways.items():
        prompts = list(texts(task))
        params = SamplingParams(temperature=0, max_tokens=TOKENS)
        before, begin = llm.stats, time.perf_counter()
        groups = [prompts[i : i + users] for i in range(0, len(prompts), users)]
        talks = [[[{"role": "user", "content": text}] for text in group] for group in groups]
        outputs = [output for talk in talks for output in llm.chat(talk, params, use_tqdm=False)]
        seconds = time.perf_counter() - begin
        answers[way] = [output.outputs[0].token_ids for output in outputs]
        runs[way] = _Run(sum(map(len, answers[way])), seconds, *_drafts(before, llm.stats))
        if answers[way] != answers["off"]:
            raise EngineError(f"answers with speculation {way} are not those without")
    return runs


def _drafts(before: EngineStats, after: EngineStats) -> tuple[int, int]:
    drafts = after.draft_tokens_total - before.draft_tokens_total
    return drafts, after.accepted_tokens_total - before.accepted_tokens_total


def texts(task: str) -> Iterator[str]:
    """Prompts, one for each file."""
    folder = Path(octavo.__file__).parent
    for name in FILES:
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        text = source if task == "edit" else _docstrings(source)
        yield f"{TASKS[task]}\n\n{text[:CHARACTERS]}"


def _docstrings(source: str) -> str:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [ast.get_docstring(n) for n in ast.walk(ast.parse(source)) if isinstance(n, kinds)]
    return "\n".join(text for text in found if text)


def _speeds(task: str, users: int, rounds: Sequence[dict[str, _Run]]) -> Iterator[Speed]:
    for way in rounds[0]:
        runs = [one[way] for one in rounds]
        drafts, accepted = sum(r.drafts for r in runs), sum(r.accepted for r in runs)
        tokens = sum(r.tokens for r in runs)
        yield Speed(
            task,
            users,
            way,
            statistics.median(r.tokens / r.seconds for r in runs),
            statistics.median(one["off"].seconds / one[way].seconds for one in rounds),
            accepted / drafts if drafts else 0.0,
            tokens / (tokens - accepted),
        )


def table(speeds: Sequence[Speed]) -> str:
    """A line for each way."""
    lines = [
        f"{'task':<7}{'users':>5}  {'way':<8}{'tok/s':>8}{'ratio':>8}{'accepted':>10}{'a row':>7}"
    ]
    for s in speeds:
        lines.append(
            f"{s.task:<7}{s.users:>5}  {s.way:<8}{s.tokens_per_second:>8.1f}{s.ratio:>8.2f}"
            f"{s.accepted:>10.0%}{s.per_step:>7.2f}"
        )
    return "\n".join(lines)
