"""Logprobs of the model's own distribution, before any sampling control."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from octavo.base.plan import TokenLogprobs


def token_logprobs(
    logits: Tensor, tokens: Sequence[int], counts: Sequence[int]
) -> list[TokenLogprobs]:
    """For each row the drawn token's logprob and rank, and the `counts` likeliest tokens.

    Args:
        logits: float32 [rows, vocab], as the model gave them.
        tokens: the drawn token of each row.
        counts: how many likeliest tokens each row wants, 0 or more; ties go by lower id.
    """
    logprobs = logits.log_softmax(-1)
    mine = logprobs.gather(1, torch.tensor(tokens, device=logits.device).unsqueeze(-1))
    ranks = (logprobs > mine).count_nonzero(-1) + 1
    tops = _likeliest(logprobs, counts)
    return [
        TokenLogprobs(token, logprob, rank, top)
        for token, logprob, rank, top in zip(
            tokens, mine.squeeze(-1).tolist(), ranks.tolist(), tops, strict=True
        )
    ]


def _likeliest(logprobs: Tensor, counts: Sequence[int]) -> list[list[tuple[int, float]]]:
    most = min(max(counts), logprobs.shape[1])
    tops: list[list[tuple[int, float]]] = [[] for _ in counts]
    if most == 0:
        return tops
    # topk alone would choose freely among equals at its edge, so take all down to that edge.
    edge = logprobs.topk(most).values[:, -1:]
    rows, ids = (logprobs >= edge).nonzero(as_tuple=True)
    values = logprobs[rows, ids].tolist()
    for row, token, logprob in zip(rows.tolist(), ids.tolist(), values, strict=True):
        tops[row].append((token, logprob))
    return [
        sorted(top, key=lambda pair: -pair[1])[:count]  # stable: equals stay in id order
        for top, count in zip(tops, counts, strict=True)
    ]
