"""From adjusted logits to one token a row: temperature, min_p, top_k, top_p, one uniform.

Rows never touch each other. Along the vocabulary only max, selection and sequential float64
cumulative sums are used: `torch.sum` and `torch.logsumexp` split a lone row over threads, but
not many rows, so their last bits depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from octavo.base.sampling_params import SamplingParams

_TILE = 2**18  # logits worked on at a time: they and their float64 sums stay in cache
_NARROW = 64  # a smaller top_k looks at so many likeliest tokens alone


def draw(logits: Tensor, params: Sequence[SamplingParams], noise: Sequence[float]) -> Tensor:
    """Draw one token a row by inverting its uniform over the surviving tokens in id order.

    Args:
        logits: float32 [rows, vocab], the largest of each row finite.
        noise: a uniform in [0, 1) for each row.
    Returns:
        Token ids, int64 [rows].
    """
    vocab = logits.shape[1]
    tokens = torch.empty(len(params), dtype=torch.int64, device=logits.device)
    narrow = [i for i, p in enumerate(params) if 0 < p.top_k < _NARROW < vocab]
    wide = [i for i, p in enumerate(params) if not 0 < p.top_k < _NARROW < vocab]
    if narrow:
        tokens[narrow], whole = _draw_narrow(select(logits, narrow), *_pick(params, noise, narrow))
        wide += [i for i, is_whole in zip(narrow, whole, strict=True) if not is_whole]
    # Like with like, so that rows without filters do not pay for others in their tile.
    wide.sort(key=lambda i: (params[i].min_p > 0, params[i].top_k > 0, params[i].top_p < 1))
    height = max(1, _TILE // vocab)
    for tile in (wide[start : start + height] for start in range(0, len(wide), height)):
        tokens[tile] = _draw_all(select(logits, tile), *_pick(params, noise, tile))
    return tokens


def select(logits: Tensor, rows: Sequence[int]) -> Tensor:
    """Those rows; `logits` itself where that is all of them in order."""
    if list(rows) == list(range(len(logits))):
        return logits
    return logits.index_select(0, torch.tensor(rows, device=logits.device))


def _pick(
    params: Sequence[SamplingParams], noise: Sequence[float], rows: Sequence[int]
) -> tuple[list[SamplingParams], list[float]]:
    return [params[i] for i in rows], [noise[i] for i in rows]


def _draw_narrow(
    logits: Tensor, params: Sequence[SamplingParams], noise: Sequence[float]
) -> tuple[Tensor, list[bool]]:
    """Draw among the likeliest tokens alone, and say where they held all that top_k keeps.

    The rest has weight 0 for such a row, so its token is the same as in full width.
    """
    values, ids = logits.topk(_NARROW)
    kth = values.gather(1, _column((p.top_k - 1 for p in params), torch.int64, logits.device))
    ids = ids.sort().values
    drawn = _draw_all(logits.gather(1, ids), params, noise)
    whole = (kth > values[:, -1:]).squeeze(-1).tolist()  # else ties may go on beyond
    return ids.gather(1, drawn.unsqueeze(-1)).squeeze(-1), whole


def _draw_all(logits: Tensor, params: Sequence[SamplingParams], noise: Sequence[float]) -> Tensor:
    sums = surviving_weights(logits, params).cumsum(-1, dtype=torch.float64)
    targets = _column(noise, torch.float64, logits.device) * sums[:, -1:]
    return torch.searchsorted(sums, targets, right=True).squeeze(-1)


def surviving_weights(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """What each token weighs in the draw, [rows, vocab]; 0 where a control excludes it."""
    weights = token_weights(logits, params)
    kept = survivors(logits, weights, params)
    return weights if kept is None else weights.mul_(kept)


def token_weights(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """e^((logit - largest) / temperature), [rows, vocab].

    The likeliest token has weight 1, so min_p is a weight and no temperature overflows.
    """
    temperature = _column((p.temperature for p in params), torch.float32, logits.device)
    return (logits - logits.amax(-1, keepdim=True)).div_(temperature).exp_()


def survivors(logits: Tensor, weights: Tensor, params: Sequence[SamplingParams]) -> Tensor | None:
    """Which tokens min_p, top_k and top_p leave, [rows, vocab]; None where they are off.

    Ties at a cut survive together, so that no sort order shows.
    """
    kept = None
    if any(p.min_p > 0 for p in params):
        kept = weights >= _column((p.min_p for p in params), torch.float32, logits.device)
    if any(p.top_k > 0 for p in params):
        kept = _both(kept, logits >= _kth(logits, [p.top_k for p in params]))
    if any(p.top_p < 1 for p in params):
        left = weights if kept is None else weights * kept
        kept = _both(kept, weights >= _nucleus(left, [p.top_p for p in params]))
    return kept


def _both(kept: Tensor | None, too: Tensor) -> Tensor:
    return too if kept is None else kept & too


def _kth(logits: Tensor, top_k: Sequence[int]) -> Tensor:
    """The top_k-th largest logit of each row, the smallest where top_k is off, [rows, 1]."""
    last = logits.shape[1] - 1
    index = [min(k - 1, last) if k > 0 else last for k in top_k]
    return _descending(logits).gather(1, _column(index, torch.int64, logits.device))


def _nucleus(weights: Tensor, top_p: Sequence[float]) -> Tensor:
    """The smallest weight of each row's nucleus, 0 where top_p is 1, [rows, 1].

    The nucleus is the fewest likeliest tokens that hold top_p of the row's mass.
    """
    share = _column(top_p, torch.float64, weights.device)
    largest = _descending(weights)
    upto = largest.cumsum(-1, dtype=torch.float64)
    last = torch.searchsorted(upto, share * upto[:, -1:])  # index of the nucleus's last token
    return largest.gather(1, last) * (share < 1)


def _descending(weights: Tensor) -> Tensor:
    if weights.device.type == "cpu":
        # NumPy sorts float32 ten times faster than torch does on a CPU, and faster than its topk.
        return torch.from_numpy(np.sort(weights.numpy(), axis=-1)[:, ::-1].copy())
    return weights.sort(descending=True).values


def _column(values: Iterable[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """[rows, 1]"""
    return torch.tensor(list(values), dtype=dtype, device=device).unsqueeze(-1)
