"""Logits to tokens and logprobs, for all rows of a step at once. Knows no steps and no blocks.

Order: raw logprobs, logit_bias, min_tokens mask, penalties, temperature, min_p, top_k, top_p,
draw. What a row gets depends on that row alone, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from octavo.base.plan import TokenLogprobs
from octavo.sampling.adjust import SamplingRow, adjusted
from octavo.sampling.draw import draw, select
from octavo.sampling.logprobs import token_logprobs
from octavo.sampling.philox import uniforms

__all__ = ["Drawn", "SamplingRow", "sample"]

GREEDY_BELOW = 1e-5  # temperature


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a row drew. With `error`, its logits were unusable and `token_id` is -1."""

    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[Drawn]:
    """Draw the next token of every row.

    Args:
        logits: [rows, vocab], any float type, unchanged; vocab may be wider than the tokenizer's.
    """
    assert logits.shape[0] == len(rows), f"{logits.shape[0]} logit rows for {len(rows)} rows"
    if not rows:
        return []
    raw = logits.float()
    work = adjusted(raw, rows)
    # The first maximum, and NaN before any number, so one pass finds greedy tokens and faults.
    best = work.argmax(-1, keepdim=True)
    tokens = best.squeeze(-1).tolist()
    errors = [_fault(peak) for peak in work.gather(1, best).squeeze(-1).tolist()]
    _draw_random(work, rows, tokens, errors)
    logprobs = _asked_logprobs(raw, rows, tokens, errors)
    return [
        Drawn(-1, error=error) if error else Drawn(token, logprobs.get(i))
        for i, (token, error) in enumerate(zip(tokens, errors, strict=True))
    ]


def _fault(peak: float) -> str | None:
    if math.isfinite(peak):
        return None
    if peak == -math.inf:
        return "no token can be drawn: every logit is -inf"
    return f"the model's logits contain {peak}"


def _draw_random(
    work: Tensor, rows: Sequence[SamplingRow], tokens: list[int], errors: Sequence[str | None]
) -> None:
    """Replace the likeliest token of every sound row that is not greedy."""
    random = [
        i
        for i, row in enumerate(rows)
        if row.params.temperature >= GREEDY_BELOW and errors[i] is None
    ]
    if random:
        noise = _noise([rows[i] for i in random])
        drawn = draw(select(work, random), [rows[i].params for i in random], noise)
        for i, token in zip(random, drawn.tolist(), strict=True):
            tokens[i] = token


def _noise(rows: Sequence[SamplingRow]) -> list[float]:
    seeds = [row.params.seed for row in rows if row.params.seed is not None]
    assert len(seeds) == len(rows), "a missing seed is drawn before a request gets here"
    children, positions = [row.child for row in rows], [row.position for row in rows]
    noise: list[float] = uniforms(seeds, children, positions).tolist()
    return noise


def _asked_logprobs(
    raw: Tensor, rows: Sequence[SamplingRow], tokens: Sequence[int], errors: Sequence[str | None]
) -> dict[int, TokenLogprobs]:
    """By row, for sound rows that want them."""
    asked = [i for i, row in enumerate(rows) if row.params.logprobs is not None and not errors[i]]
    if not asked:
        return {}
    counts = [rows[i].params.logprobs or 0 for i in asked]
    found = token_logprobs(select(raw, asked), [tokens[i] for i in asked], counts)
    return dict(zip(asked, found, strict=True))
