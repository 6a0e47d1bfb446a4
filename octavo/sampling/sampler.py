"""Logits to tokens and logprobs, for all rows of a step at once. Knows no steps and no blocks.

Order: raw logprobs, logit_bias, min_tokens mask, penalties, temperature, min_p, top_k, top_p,
draw. What a row gets depends on that row alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from octavo.base.plan import TokenLogprobs
from octavo.sampling.adjust import adjusted
from octavo.sampling.draw import draw, select
from octavo.sampling.logprobs import token_logprobs
from octavo.sampling.rows import Drawn, SamplingRow, fault, noise


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
    errors = [fault(peak) for peak in work.gather(1, best).squeeze(-1).tolist()]
    _draw_random(work, rows, tokens, errors)
    logprobs = _asked_logprobs(raw, rows, tokens, errors)
    return [
        Drawn(-1, error=error) if error else Drawn(token, logprobs.get(i))
        for i, (token, error) in enumerate(zip(tokens, errors, strict=True))
    ]


def _draw_random(
    work: Tensor, rows: Sequence[SamplingRow], tokens: list[int], errors: Sequence[str | None]
) -> None:
    """Replace the likeliest token of every sound row that is not greedy."""
    random = [i for i, row in enumerate(rows) if not row.greedy and errors[i] is None]
    if random:
        chosen = [rows[i] for i in random]
        params = [row.params for row in chosen]
        drawn = draw(select(work, random), params, noise(chosen).tolist())
        for i, token in zip(random, drawn.tolist(), strict=True):
            tokens[i] = token


def _asked_logprobs(
    raw: Tensor, rows: Sequence[SamplingRow], tokens: Sequence[int], errors: Sequence[str | None]
) -> dict[int, TokenLogprobs]:
    """By row, for sound rows that want them."""
    asked = [i for i, row in enumerate(rows) if row.logprobs is not None and not errors[i]]
    if not asked:
        return {}
    counts = [rows[i].logprobs or 0 for i in asked]
    found = token_logprobs(select(raw, asked), [tokens[i] for i in asked], counts)
    return dict(zip(asked, found, strict=True))
