"""The work that is measured: fixed token-id prompts and output lengths, so that tokenizers and
stop rules play no part. Every request generates exactly `output_len` tokens, greedily."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from octavo.base.errors import ConfigError
from octavo.base.sampling_params import SamplingParams

IDS = (100, 40_000)  # of the prompts; a model with fewer refuses them


@dataclass(frozen=True)
class Work:
    """One request: a prompt and how many tokens to generate."""

    prompt: list[int]
    output_len: int

    def params(self) -> SamplingParams:
        return SamplingParams(temperature=0.0, max_tokens=self.output_len, ignore_eos=True)


def single() -> list[Work]:
    """One user, 128 tokens in, 128 out."""
    return [Work(_ids(random.Random(0), 128), 128)]


def mixed() -> list[Work]:
    """64 requests at once, 32-256 in, 32-128 out."""
    rng = random.Random(1)
    return [Work(_ids(rng, rng.randint(32, 256)), rng.randint(32, 128)) for _ in range(64)]


def shared_prefix() -> list[Work]:
    """64 requests that begin with the same 512 tokens, 32 of their own, 32 out."""
    rng = random.Random(2)
    prefix = _ids(rng, 512)
    return [Work(prefix + _ids(rng, 32), 32) for _ in range(64)]


def prefill() -> list[Work]:
    """4 prompts of 2048 tokens, 1 out."""
    rng = random.Random(3)
    return [Work(_ids(rng, 2048), 1) for _ in range(4)]


def long_context() -> list[Work]:
    """16 prompts of 2048 tokens at once, 64 out."""
    rng = random.Random(4)
    return [Work(_ids(rng, 2048), 64) for _ in range(16)]


WORKLOADS: dict[str, Callable[[], list[Work]]] = {
    make.__name__: make for make in (single, mixed, shared_prefix, prefill, long_context)
}


def workload(name: str) -> list[Work]:
    """Raises ConfigError where `name` is no workload."""
    if name not in WORKLOADS:
        raise ConfigError(f"--workload {name}: known are {', '.join(WORKLOADS)}")
    return WORKLOADS[name]()


def warm_up() -> list[Work]:
    """A little work of other tokens, so that first-use costs are not measured."""
    rng = random.Random(1000)
    return [Work(_ids(rng, 64), 8) for _ in range(4)]


def prompt(seed: int, length: int, output_len: int) -> Work:
    """One request of `length` random tokens."""
    return Work(_ids(random.Random(f"prompt {seed}"), length), output_len)


def _ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(*IDS) for _ in range(count)]
