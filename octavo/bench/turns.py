"""`octavo bench turns`: the time to a conversation's next first token, warm and cold."""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import asdict, dataclass

from octavo.base.log import configure
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import EngineSettings
from octavo.bench.report import check_json, check_repeats, machine, write_json
from octavo.bench.run import prepared_engine
from octavo.bench.workloads import prompt
from octavo.engine.door import Door
from octavo.engine.engine import Engine

TURNS = 10
QUESTION = 16  # tokens that each turn adds, after an answer of
ANSWER = 100  # tokens


@dataclass(frozen=True)
class Turn:
    """One question. Times to the first token are medians, in milliseconds."""

    prompt_tokens: int
    computed: int  # of them, warm
    warm_ms: float
    cold_ms: float


def run(options: argparse.Namespace, settings: EngineSettings) -> None:
    """Measure, show, and write a file if asked."""
    configure()
    check_repeats(options.repeats)
    check_json(options.json)
    turns = measure(prepared_engine(settings), options.repeats)
    print(f"{'turn':>4}{'prompt':>9}{'computed':>10}{'warm ms':>10}{'cold ms':>10}{'ratio':>8}")
    for number, turn in enumerate(turns, 1):
        print(
            f"{number:>4}{turn.prompt_tokens:>9,}{turn.computed:>10}{turn.warm_ms:>10.1f}"
            f"{turn.cold_ms:>10.1f}{turn.cold_ms / turn.warm_ms:>8.1f}"
        )
    write_json(options.json, {"machine": machine(), "turns": [asdict(turn) for turn in turns]})


def measure(engine: Engine, repeats: int) -> list[Turn]:
    """Ten turns; of each the medians over `repeats` conversations. Cold: the same prompt where
    nothing of it is cached."""
    times: list[list[tuple[float, float]]] = [[] for _ in range(TURNS)]
    sizes: list[tuple[int, int]] = []
    for repeat in range(repeats):
        talk: list[int] = []
        for turn in range(TURNS):
            talk += prompt(100 * repeat + turn, QUESTION, 1).prompt
            cold, _, _ = answer(engine, talk, f"cold {repeat} {turn}", 1)
            warm, hit, said = answer(engine, talk, f"warm {repeat}", ANSWER)
            times[turn].append((warm, cold))
            if repeat == 0:
                sizes.append((len(talk), len(talk) - hit))
            talk += said
    return [
        Turn(*size, *(1000 * statistics.median(column) for column in zip(*pairs, strict=True)))
        for size, pairs in zip(sizes, times, strict=True)
    ]


def answer(
    engine: Engine, talk: list[int], salt: str, max_tokens: int
) -> tuple[float, int, list[int]]:
    """Seconds to the first token, tokens found in the cache, and what was said."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    engine.add(Door(engine.info, 0).request(list(talk), params, cache_salt=salt))
    begin = time.perf_counter()
    deltas = engine.step()
    while not deltas:
        deltas = engine.step()
    first = time.perf_counter() - begin
    hit = deltas[0].num_cached_tokens
    while engine.has_work:
        deltas += engine.step()
    return first, hit, [token for delta in deltas for token in delta.token_ids]
