"""Logprobs: of the model's own distribution, or of that which tokens are drawn from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from octavo.base.plan import TokenLogprobs
from octavo.base.sampling_params import SamplingParams
from octavo.sampling.draw import survivors, token_weights
from octavo.sampling.rows import SamplingRow

_UNCUT = SamplingParams()  # temperature 1, and nothing is cut: how greedy rows are told of


def processed_logprobs(logits: Tensor, rows: Sequence[SamplingRow]) -> tuple[Tensor, list[float]]:
    """Logprobs that rows are drawn with, float64 [rows, vocab], and log of the share of each
    distribution that survived its cuts.

    Args:
        logits: float32 [rows, vocab], adjusted, the largest of each row finite.
    """
    params = [row.params if row.random else _UNCUT for row in rows]
    weights = token_weights(logits, params)
    everything = weights.cumsum(-1, dtype=torch.float64)[:, -1:]
    kept = survivors(logits, weights, params)
    left = everything
    if kept is not None:
        left = weights.mul_(kept).cumsum(-1, dtype=torch.float64)[:, -1:]
    temperature = torch.tensor([[p.temperature] for p in params], dtype=torch.float64)
    far = (logits.double() - logits.amax(-1, keepdim=True)) / temperature.to(logits.device)
    logprobs = far - left.log()
    if kept is not None:
        logprobs.masked_fill_(~kept, -torch.inf)
    return logprobs, (left / everything).log().squeeze(-1).tolist()


def token_logprobs(
    logprobs: Tensor,
    rows: Sequence[SamplingRow],
    tokens: Sequence[int],
    log_mass: Sequence[float] | None = None,
) -> list[TokenLogprobs]:
    """For each row its token's logprob and rank, the likeliest tokens, ties by lower id, and those
    it names.

    Args:
        logprobs: [rows, vocab].
        tokens: drawn or given, one a row.
        log_mass: of each row; with it, tokens that were cut are not among the likeliest.
    """
    mine = logprobs.gather(1, torch.tensor(tokens, device=logprobs.device).unsqueeze(-1))
    ranks = (logprobs > mine).count_nonzero(-1) + 1
    tops = _likeliest(logprobs, [row.told(logprobs.shape[1]) for row in rows])
    if log_mass is not None:
        tops = [[pair for pair in top if pair[1] > -torch.inf] for top in tops]
    named = [
        list(zip(row.named.tolist(), line[row.named].tolist(), strict=True))
        for row, line in zip(rows, logprobs, strict=True)
    ]
    masses: Sequence[float | None] = log_mass or [None] * len(rows)
    told = zip(tokens, mine.squeeze(-1).tolist(), ranks.tolist(), tops, named, masses, strict=True)
    return [TokenLogprobs(*fields) for fields in told]


def _likeliest(logprobs: Tensor, counts: Sequence[int]) -> list[list[tuple[int, float]]]:
    vocab = logprobs.shape[1]
    few = max((count for count in counts if count < vocab), default=0)
    tops: list[list[tuple[int, float]]] = [[] for _ in counts]
    if few:
        # topk alone would choose freely among equals at its edge, so take all down to that edge.
        edge = logprobs.topk(few).values[:, -1:]
        rows, ids = (logprobs >= edge).nonzero(as_tuple=True)
        values = logprobs[rows, ids].tolist()
        for row, token, logprob in zip(rows.tolist(), ids.tolist(), values, strict=True):
            tops[row].append((token, logprob))
        tops = [
            sorted(top, key=lambda pair: -pair[1])[:count]  # stable: equals stay in id order
            for top, count in zip(tops, counts, strict=True)
        ]
    for row in (i for i, count in enumerate(counts) if count == vocab):
        best = logprobs[row].sort(descending=True, stable=True)
        tops[row] = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return tops
