"""What is asked of a model that is verified: 32 prompts of token ids and texts, the same every
time, some with beginnings in common, each with its own way of sampling."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.engine.door import Door
from octavo.engine.info import EngineInfo

REQUESTS = 32
PHRASE = 7  # tokens that are repeated
TEXTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Die Würde des Menschen ist unantastbar. Sie zu achten und zu schützen ist",
    "In the beginning the Universe was created. This has made a lot of people very angry and been "
    "widely regarded as a bad move. 宇宙の始まり 🌌 -",
)
SAMPLING: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.0, "n": 4},
    {"temperature": 0.0, "repetition_penalty": 1.2},
    {"temperature": 1.0, "top_k": 20, "min_p": 0.05},
    {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    {"temperature": 1.5, "min_p": 0.1, "logit_bias": {7: 2.0}, "logprobs_mode": "processed"},
    {"temperature": 1.0, "ignore_eos": False, "min_tokens": 2},
)


@dataclass(frozen=True)
class Scale:
    """Tokens of prompts, one after another and again, and of every answer."""

    prompts: tuple[int, ...]
    output: int

    @property
    def longest(self) -> int:
        return max(self.prompts) + self.output


QUICK = Scale((33, 1, 16, 47, 17, 5, 24), 6)
FULL = Scale((33, 1, 16, 100, 17, 5, 70, 300, 48, 150, 640), 32)  # longer than common windows


def requests(info: EngineInfo, scale: Scale, texts: Sequence[Sequence[int]]) -> list[Request]:
    """`texts` are TEXTS as token ids, or nothing where there is no tokenizer."""
    door = Door(info)
    room = info.max_model_len - scale.output
    prompts = [*_prompts(info.vocab_size, scale, REQUESTS - len(texts)), *texts]
    return [
        door.request(list(prompt[:room]), _params(n, scale), request_id=f"verify-{n}")
        for n, prompt in enumerate(prompts)
    ]


def _prompts(vocab_size: int, scale: Scale, count: int) -> list[list[int]]:
    """Every third begins as the one before it, to somewhere in the middle; every fourth repeats
    itself, so that there is something to guess."""
    draw = random.Random(1)
    found: list[list[int]] = []
    for n in range(count):
        ids = draw.choices(range(vocab_size), k=scale.prompts[n % len(scale.prompts)])
        if n % 3 == 2:
            shared = found[-1][: len(ids) * 2 // 3]
            ids[: len(shared)] = shared
        if n % 4 == 0:
            ids = (ids[:PHRASE] * len(ids))[: len(ids)]
        found.append(ids)
    return found


def _params(number: int, scale: Scale) -> SamplingParams:
    own = {"ignore_eos": True} | SAMPLING[number % len(SAMPLING)]
    if number % 5 == 1:
        own["prompt_logprobs"] = 2
    return SamplingParams(**own, max_tokens=scale.output, logprobs=number % 6, seed=number)
