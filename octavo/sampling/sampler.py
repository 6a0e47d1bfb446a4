"""Logits to tokens and logprobs, for all rows of a step at once. Knows no steps and no blocks.

Order: raw logprobs, processors, allowed tokens, bad words, min_tokens mask and logit_bias,
penalties, temperature, min_p, top_k, top_p, draw, processed logprobs. What a row gets depends on
that row alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from octavo.base.plan import TokenLogprobs
from octavo.sampling.adjust import adjusted, processed
from octavo.sampling.draw import draw, select
from octavo.sampling.logprobs import processed_logprobs, token_logprobs
from octavo.sampling.processors import NO_PROCESSORS, Processors
from octavo.sampling.rows import Drawn, SamplingRow, fault, noise


def sample(
    logits: Tensor, rows: Sequence[SamplingRow], processors: Processors = NO_PROCESSORS
) -> list[Drawn]:
    """Draw the next token of every row.

    Args:
        logits: [rows, vocab], any float type, unchanged; vocab may be wider than the tokenizer's.
        processors: those that rows may name.
    """
    assert logits.shape[0] == len(rows), f"{logits.shape[0]} logit rows for {len(rows)} rows"
    if not rows:
        return []
    raw = logits.float()
    work, wrong = processed(raw, rows, processors)
    work = adjusted(work, rows)
    # The first maximum, and NaN before any number, so one pass finds greedy tokens and faults.
    best = work.argmax(-1, keepdim=True)
    peaks = work.gather(1, best).squeeze(-1).tolist()
    errors = [wrong.get(i) or fault(peak) for i, peak in enumerate(peaks)]
    tokens = [
        likeliest if row.given is None else row.given
        for row, likeliest in zip(rows, best.squeeze(-1).tolist(), strict=True)
    ]
    _draw_random(work, rows, tokens, errors)
    asked = [i for i, row in enumerate(rows) if row.logprobs is not None and errors[i] is None]
    logprobs = _raw(raw, rows, tokens, [i for i in asked if not rows[i].processed])
    logprobs |= _processed(work, rows, tokens, [i for i in asked if rows[i].processed])
    return [
        Drawn(-1, error=error) if error else Drawn(token, logprobs.get(i))
        for i, (token, error) in enumerate(zip(tokens, errors, strict=True))
    ]


def _draw_random(
    work: Tensor, rows: Sequence[SamplingRow], tokens: list[int], errors: Sequence[str | None]
) -> None:
    """Replace the likeliest token of every sound row that is not greedy."""
    random = [i for i, row in enumerate(rows) if row.random and errors[i] is None]
    if random:
        chosen = [rows[i] for i in random]
        params = [row.params for row in chosen]
        drawn = draw(select(work, random), params, noise(chosen).tolist())
        for i, token in zip(random, drawn.tolist(), strict=True):
            tokens[i] = token


def _raw(
    raw: Tensor, rows: Sequence[SamplingRow], tokens: Sequence[int], asked: Sequence[int]
) -> dict[int, TokenLogprobs]:
    """By row, for those asked."""
    if not asked:
        return {}
    logprobs = select(raw, asked).log_softmax(-1)
    told = token_logprobs(logprobs, [rows[i] for i in asked], [tokens[i] for i in asked])
    return dict(zip(asked, told, strict=True))


def _processed(
    work: Tensor, rows: Sequence[SamplingRow], tokens: Sequence[int], asked: Sequence[int]
) -> dict[int, TokenLogprobs]:
    """By row, for those asked."""
    if not asked:
        return {}
    mine = [rows[i] for i in asked]
    logprobs, log_mass = processed_logprobs(select(work, asked), mine)
    told = token_logprobs(logprobs, mine, [tokens[i] for i in asked], log_mass)
    return dict(zip(asked, told, strict=True))
