"""`octavo bench sampling`: what drawing a step's tokens costs, by what its rows ask for.

Logits are made up: those of a power law, in another order in each row. Time is that of processors,
so that what else runs on the machine does not count: the library's, divided by its threads, and
Python's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from octavo.base.errors import ConfigError
from octavo.base.sampling_params import SamplingParams
from octavo.bench.report import check_json, check_repeats, machine, write_json
from octavo.engine.hardware import num_cores
from octavo.native.interface import Pool, Sampler
from octavo.native.library import library
from octavo.native.sampling import sample
from octavo.sampling.rows import SamplingRow

VOCABS = (49_152, 150_000)
KNOWN, PROMPT = 1000, 500  # tokens that each row knows; so many of them are its prompt
EXPONENT = 1.5  # of the power law: the likeliest token has 0.38, half of the mass is in 2 tokens
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature 0.8": {"temperature": 0.8},
    "top_p 0.95": {"top_p": 0.95},
    "top_k 50, top_p 0.95": {"top_k": 50, "top_p": 0.95},
    "min_p 0.05": {"min_p": 0.05},
    "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.1},
    "20 logprobs, raw": {"logprobs": 20},
    "20 logprobs, processed": {"logprobs": 20, "logprobs_mode": "processed"},
    "the same, top_p 0.95": {"logprobs": 20, "logprobs_mode": "processed", "top_p": 0.95},
}


class Watched:
    """A sampler that remembers how long processors worked for it."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.seconds = 0.0

    def sample(
        self,
        logits: np.ndarray,
        work: np.ndarray,
        controls: np.ndarray,
        masks: np.ndarray,
        ids: np.ndarray,
        edits: np.ndarray,
        drawn: np.ndarray,
        likely: np.ndarray,
    ) -> None:
        begin = time.process_time()
        self._sampler.sample(logits, work, controls, masks, ids, edits, drawn, likely)
        self.seconds = time.process_time() - begin


@dataclass(frozen=True)
class Cost:
    """Of one case: the quickest of several steps."""

    case: str
    vocab: int
    ms: float
    python_ms: float  # of it, before and after the native library


def run(options: argparse.Namespace) -> None:
    """Measure, print, and write a file if asked. Raises ConfigError for impossible options."""
    threads = num_cores() if options.threads is None else options.threads
    for flag, value in (("--threads", threads), ("--rows", options.rows)):
        if value < 1:
            raise ConfigError(f"{flag} must be at least 1, got {value}")
    check_repeats(options.repeats)
    check_json(options.json)
    pool = library().Pool(threads)
    costs = [c for vocab in VOCABS for c in measure(pool, options.rows, vocab, options.repeats)]
    print(table(f"{options.rows} rows, {threads} threads", costs))
    report = {"rows": options.rows, "threads": threads, "machine": machine()}
    write_json(options.json, report | {"costs": [asdict(cost) for cost in costs]})


def measure(pool: Pool, rows: int, vocab: int, repeats: int) -> Iterator[Cost]:
    rng = np.random.default_rng(0)
    law = (-EXPONENT * np.log(np.arange(1, vocab + 1))).astype(np.float32)
    logits = np.stack([rng.permutation(law) for _ in range(rows)])
    known = rng.integers(0, vocab, KNOWN).astype(np.int32)
    for case, controls in CASES.items():
        wanted = [SamplingParams(seed=i, max_tokens=None, **controls) for i in range(rows)]
        drawn = [SamplingRow(p, 0, KNOWN, PROMPT, known, (), p.logprobs) for p in wanted]
        found = [_step(pool, logits, drawn) for _ in range(repeats)]
        yield Cost(case, vocab, min(f[0] for f in found) * 1e3, min(f[1] for f in found) * 1e3)


def _step(pool: Pool, logits: np.ndarray, rows: Sequence[SamplingRow]) -> tuple[float, float]:
    """Seconds, and those of Python."""
    watched = Watched(pool)
    begin = time.process_time()
    sample(watched, logits, rows)
    python = time.process_time() - begin - watched.seconds
    return python + watched.seconds / pool.threads, python


def table(title: str, costs: Sequence[Cost]) -> str:
    """A line for each case; milliseconds for each vocabulary, and Python's share of them."""
    vocabs = list(dict.fromkeys(cost.vocab for cost in costs))
    lines = [f"{title:<24}" + "".join(f"{vocab:>12,}  python" for vocab in vocabs) + "  ms"]
    for case in dict.fromkeys(cost.case for cost in costs):
        mine = [cost for cost in costs if cost.case == case]
        lines.append(f"{case:<24}" + "".join(f"{c.ms:>12.2f}{c.python_ms:>8.2f}" for c in mine))
    return "\n".join(lines)
