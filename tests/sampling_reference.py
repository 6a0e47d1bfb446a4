"""Sampling in float64, plainly: one row at a time, by sorting."""

from __future__ import annotations

from collections import Counter

import numpy as np

from octavo.sampling.philox import uniforms
from octavo.sampling.rows import SamplingRow


def reference_logits(logits: np.ndarray, row: SamplingRow) -> np.ndarray:
    p, x = row.params, logits.astype(np.float64)
    for token, bias in (p.logit_bias or {}).items():
        x[token] += bias
    output = row.token_ids[row.prompt_len :].tolist()
    if len(output) < p.min_tokens:
        x[list(row.stop_ids)] = -np.inf
    for token in set(row.token_ids.tolist()):
        x[token] *= 1 / p.repetition_penalty if x[token] > 0 else p.repetition_penalty
    for token, count in Counter(output).items():
        x[token] -= count * p.frequency_penalty + p.presence_penalty
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
