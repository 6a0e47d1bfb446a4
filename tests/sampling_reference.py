"""Sampling in float64, plainly: one row at a time, by sorting.

Adjusted logits are float32 by definition: every control rounds to it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from octavo.sampling.philox import uniforms
from octavo.sampling.rows import SamplingRow


def reference_logits(logits: np.ndarray, row: SamplingRow) -> np.ndarray:
    p, x = row.params, logits.astype(np.float64)
    output = row.token_ids[row.prompt_len : row.position].tolist()
    if row.mask is not None:
        bits = [int(word) >> bit & 1 for word in row.mask.view(np.uint32) for bit in range(32)]
        x[[i for i in range(len(x)) if i >= len(bits) or not bits[i]]] = -np.inf
    if p.allowed_token_ids is not None:
        x[~np.isin(np.arange(len(x)), p.allowed_token_ids)] = -np.inf
    for *begun, last in p.bad_word_ids or ():
        if not begun or output[-len(begun) :] == begun:
            x[last] = -np.inf
    for token, bias in (p.logit_bias or {}).items():
        x[token] = np.float32(x[token] + np.float32(bias))
    if len(output) < p.min_tokens:
        x[list(row.stop_ids)] = -np.inf
    scale = float(np.float32(p.repetition_penalty))
    for token in set(row.token_ids[: row.position].tolist()):
        x[token] = np.float32(x[token] / scale if x[token] > 0 else x[token] * scale)
    for token, count in Counter(output).items():
        taken = np.float32(count * p.frequency_penalty + p.presence_penalty)
        x[token] = np.float32(x[token] - taken)
    return x


def reference_weights(x: np.ndarray, row: SamplingRow) -> np.ndarray:
    p = row.params
    weights = np.exp((x - x.max()) / p.temperature)
    weights[weights < p.min_p] = 0
    if p.top_k:
        weights[weights < np.sort(weights)[-min(p.top_k, len(x))]] = 0
    if p.top_p < 1:
        largest = np.sort(weights)[::-1]
        sums = np.cumsum(largest)
        weights[weights < largest[np.searchsorted(sums, p.top_p * sums[-1])]] = 0
    return np.asarray(weights)


def reference_token(x: np.ndarray, row: SamplingRow) -> int:
    if row.params.temperature == 0:
        return int(np.argmax(x))
    [noise] = uniforms([row.params.seed or 0], [row.child], [row.position])
    sums = np.cumsum(reference_weights(x, row))
    return int(np.searchsorted(sums, noise * sums[-1], side="right"))


def reference_probabilities(x: np.ndarray, row: SamplingRow) -> tuple[np.ndarray, float]:
    """What the row is drawn from, [vocab], and the share of the distribution that it is."""
    greedy = row.params.temperature == 0
    everything = np.exp((x - x.max()) / (1 if greedy else row.params.temperature))
    left = everything if greedy else reference_weights(x, row)
    return left / left.sum(), left.sum() / everything.sum()
