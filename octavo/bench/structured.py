"""`octavo bench structured`: what a structure costs.

A batch answers in a structure, and then the same batch says as many tokens of its own choice; both
in turns, so that a slow minute of the machine meets them alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from octavo.base.errors import EngineError
from octavo.base.log import configure
from octavo.base.progress import progress
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import EngineSettings
from octavo.base.structured import StructuredOutputsParams
from octavo.bench.report import check_json, check_repeats, machine, write_json
from octavo.llm import LLM

TOKENS = 200  # of an answer, at most
PROMPT = "Products as JSON, each with a name, a price, a few tags and where it is made: "
PRODUCT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 24},
        "price": {"type": "number", "minimum": 0},
        "in_stock": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4},
        "made_in": {"enum": ["Germany", "France", "Japan", "Brazil"]},
    },
    "required": ["name", "price", "in_stock", "tags", "made_in"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": PRODUCT, "minItems": 5}


@dataclass(frozen=True)
class Pair:
    """One round: as many tokens with and without the structure."""

    tokens: int
    seconds: float
    cpu_seconds: float  # of all threads
    plain_seconds: float
    plain_cpu_seconds: float


def run(options: argparse.Namespace, settings: EngineSettings) -> None:
    """Measure, print, and write a file if asked."""
    configure()
    check_repeats(options.repeats)
    check_json(options.json)
    llm = LLM(settings.model.model, **settings.options())
    _pair(llm, options.rows)  # the grammar is made, the prompt cached
    pairs = []
    with progress(options.repeats, "structured", " rounds") as bar:
        for _ in range(options.repeats):
            pairs.append(_pair(llm, options.rows))
            bar.update()
    print(table(options.rows, pairs))
    found = {"machine": machine(), "rows": options.rows, "pairs": [asdict(pair) for pair in pairs]}
    write_json(options.json, found)


def _pair(llm: LLM, rows: int) -> Pair:
    structure = StructuredOutputsParams(json=SCHEMA)
    wanted = [
        SamplingParams(seed=i, max_tokens=TOKENS, structured_outputs=structure) for i in range(rows)
    ]
    lengths, seconds, cpu = _timed(llm, wanted)
    free = [SamplingParams(seed=i, max_tokens=n, ignore_eos=True) for i, n in enumerate(lengths)]
    _, plain_seconds, plain_cpu = _timed(llm, free)
    return Pair(sum(lengths), seconds, cpu, plain_seconds, plain_cpu)


def _timed(llm: LLM, params: Sequence[SamplingParams]) -> tuple[list[int], float, float]:
    """Tokens of each answer, and seconds.

    Raises:
        EngineError: an answer does not have its structure.
    """
    begin, cpu = time.perf_counter(), time.process_time()
    outputs = llm.generate([PROMPT] * len(params), params, use_tqdm=False)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    answers = [output.outputs[0] for output in outputs]
    if not all(answer.structured is None or answer.structured.complete for answer in answers):
        raise EngineError("an answer does not have its structure")
    return [len(answer.token_ids) for answer in answers], seconds, cpu


def table(rows: int, pairs: Sequence[Pair]) -> str:
    """Medians over the rounds."""
    times = [(p.seconds, p.plain_seconds) for p in pairs]
    cpus = [(p.cpu_seconds, p.plain_cpu_seconds) for p in pairs]
    lines = [f"{rows} rows, {pairs[0].tokens} tokens     structured     plain     ratio"]
    for name, both in (("ms a step", times), ("CPU ms a step", cpus)):
        steps = pairs[0].tokens / rows
        mine, plain = (statistics.median(part) / steps * 1e3 for part in zip(*both, strict=True))
        ratio = statistics.median(a / b for a, b in both)
        lines.append(f"{name:<22}{mine:>16.2f}{plain:>10.2f}{ratio:>10.3f}")
    return "\n".join(lines)
