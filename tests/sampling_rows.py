"""Rows and logits to sample from, made up."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import torch

from octavo.base.sampling_params import SamplingParams
from octavo.sampling.rows import SamplingRow
from octavo.sampling.sampler import sample

VOCAB = 300


def make_row(
    *, tokens: list[int] | None = None, prompt_len: int = 2, child: int = 0,
    stop_ids: tuple[int, ...] = (), mask: np.ndarray | None = None, **params: Any,
) -> SamplingRow:  # fmt: skip
    known = np.array(tokens or [1, 2], dtype=np.int32)
    params = {"seed": 0, "max_tokens": None, **params}
    wanted = SamplingParams(**params)
    return SamplingRow(
        wanted, child, len(known), prompt_len, known, stop_ids, wanted.logprobs, mask=mask
    )


def random_row(rng: np.random.Generator, vocab: int, **fixed: Any) -> SamplingRow:
    """Any mix of controls; each is off about half the time."""

    def maybe(value: Any, off: Any, often: float = 0.5) -> Any:
        return value if rng.random() < often else off

    tokens = rng.integers(0, vocab, rng.integers(2, 40))
    some = rng.integers(0, vocab, max(1, vocab // 3)).tolist()
    words = [[int(rng.integers(0, vocab))], [*tokens[-2:].tolist(), 1], [1, 1]]
    controls = {
        "seed": int(rng.integers(-(2**63), 2**63)),
        "temperature": 0.0 if rng.random() < 0.2 else float(rng.uniform(0.3, 2)),
        "top_p": maybe(float(rng.uniform(0.05, 1)), 1.0),
        "top_k": maybe(int(rng.integers(1, vocab)) if rng.random() < 0.3 else 20, 0),
        "min_p": maybe(float(rng.uniform(0, 0.2)), 0.0),
        "repetition_penalty": maybe(float(rng.uniform(0.5, 2)), 1.0),
        "frequency_penalty": maybe(float(rng.uniform(-1, 2)), 0.0),
        "presence_penalty": maybe(float(rng.uniform(-1, 2)), 0.0),
        "min_tokens": maybe(20, 0),
        "logit_bias": maybe({int(t): float(rng.uniform(-9, 9)) for t in tokens[:5]}, None),
        "allowed_token_ids": maybe(some, None, 0.2),
        "bad_word_ids": maybe(words, None, 0.3),
        "logprobs": maybe(int(rng.integers(0, 6)), None),
    }
    if controls["allowed_token_ids"] is None:
        controls["mask"] = maybe(random_mask(rng, vocab), None, 0.3)
    return make_row(
        tokens=tokens.tolist(),
        prompt_len=int(rng.integers(1, len(tokens) + 1)),
        child=int(rng.integers(0, 4)),
        stop_ids=tuple(rng.integers(0, vocab, 3).tolist()),
        **(controls | fixed),
    )


def random_mask(rng: np.random.Generator, vocab: int) -> np.ndarray:
    """Words with all, no or some bits; where 32 does not divide it, too few for the vocabulary."""
    words = max(1, vocab // 32)
    some = rng.integers(0, 2**32, words, dtype=np.uint32)
    every = np.full_like(some, 2**32 - 1)
    mask = np.choose(rng.integers(0, 3, words), [some, every, np.zeros_like(some)])
    mask[rng.integers(0, words)] = 2**32 - 1
    return mask.view(np.int32)


class Tilt:
    """A logits processor: adds to each logit what its token id and the tokens known ask for."""

    def __call__(
        self, logits: np.ndarray, token_ids: np.ndarray, prompt_len: int, extra_args: Any
    ) -> None:
        shift = (extra_args.get("by", 1.0) + len(token_ids) - prompt_len) / 7
        logits += np.sin(np.arange(len(logits)) * shift).astype(np.float32)


PROCESSORS = {"tilt": Tilt()}


def any_row(rng: np.random.Generator, vocab: int) -> SamplingRow:
    """A random row that may also be told of in any way, be given, or have a processor."""
    row = random_row(
        rng,
        vocab,
        logprobs=int(rng.integers(-1, 6)) if rng.random() < 0.7 else None,
        logprobs_mode="processed" if rng.random() < 0.5 else "raw",
        logprob_token_ids=rng.integers(0, vocab, 5).tolist() if rng.random() < 0.3 else None,
        logits_processors=["tilt"] if rng.random() < 0.3 else None,
        extra_args={"by": 3.0} if rng.random() < 0.5 else None,
    )
    if rng.random() < 0.2:
        return msgspec.structs.replace(row, given=int(rng.integers(0, vocab)))
    return row


def random_logits(rng: np.random.Generator, rows: int, vocab: int) -> torch.Tensor:
    """Half of the rows as bfloat16 would round them, so with many ties."""
    logits = torch.from_numpy(rng.normal(0, 4, (rows, vocab)).astype(np.float32))
    logits[::2] = logits[::2].bfloat16().float()
    return logits


def drawn_tokens(logits: torch.Tensor, rows: list[SamplingRow]) -> list[int]:
    return [drawn.token_id for drawn in sample(logits, rows)]
