"""Rows and logits to sample from, made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from octavo.base.sampling_params import SamplingParams
from octavo.sampling.rows import SamplingRow
from octavo.sampling.sampler import sample

VOCAB = 300


def make_row(
    *, tokens: list[int] | None = None, prompt_len: int = 2, child: int = 0,
    stop_ids: tuple[int, ...] = (), **params: Any,
) -> SamplingRow:  # fmt: skip
    known = np.array(tokens or [1, 2], dtype=np.int32)
    params = {"seed": 0, "max_tokens": None, **params}
    wanted = SamplingParams(**params)
    return SamplingRow(wanted, child, len(known), prompt_len, known, stop_ids, wanted.logprobs)


def random_row(rng: np.random.Generator, vocab: int) -> SamplingRow:
    """Any mix of controls; each is off about half the time."""

    def maybe(value: Any, off: Any) -> Any:
        return value if rng.random() < 0.5 else off

    tokens = rng.integers(0, vocab, rng.integers(2, 40))
    return make_row(
        tokens=tokens.tolist(),
        prompt_len=int(rng.integers(1, len(tokens) + 1)),
        child=int(rng.integers(0, 4)),
        stop_ids=tuple(rng.integers(0, vocab, 3).tolist()),
        seed=int(rng.integers(-(2**63), 2**63)),
        temperature=0.0 if rng.random() < 0.2 else float(rng.uniform(0.3, 2)),
        top_p=maybe(float(rng.uniform(0.05, 1)), 1.0),
        top_k=maybe(int(rng.integers(1, vocab)) if rng.random() < 0.3 else 20, 0),
        min_p=maybe(float(rng.uniform(0, 0.2)), 0.0),
        repetition_penalty=maybe(float(rng.uniform(0.5, 2)), 1.0),
        frequency_penalty=maybe(float(rng.uniform(-1, 2)), 0.0),
        presence_penalty=maybe(float(rng.uniform(-1, 2)), 0.0),
        min_tokens=maybe(20, 0),
        logit_bias=maybe({int(t): float(rng.uniform(-9, 9)) for t in tokens[:5]}, None),
        logprobs=maybe(int(rng.integers(0, 6)), None),
    )


def random_logits(rng: np.random.Generator, rows: int, vocab: int) -> torch.Tensor:
    """Half of the rows as bfloat16 would round them, so with many ties."""
    logits = torch.from_numpy(rng.normal(0, 4, (rows, vocab)).astype(np.float32))
    logits[::2] = logits[::2].bfloat16().float()
    return logits


def drawn_tokens(logits: torch.Tensor, rows: list[SamplingRow]) -> list[int]:
    return [drawn.token_id for drawn in sample(logits, rows)]
