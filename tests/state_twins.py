"""What the ops with a state mean, in float64: one sequence from its first token on."""

from __future__ import annotations

import numpy as np

Arrays = dict[str, np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def convolution(
    source: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    activation: str = "none",
    column: int = 0,
) -> np.ndarray:
    channels, taps = weight.shape
    used = source[:, column : column + channels]
    padded = np.concatenate([np.zeros((taps - 1, channels)), used])
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=0)
    y = (windows * weight.astype(float)).sum(-1) + (0 if bias is None else bias)
    return y * sigmoid(y) if activation == "silu" else y


def mamba2(
    source: np.ndarray,
    steps: np.ndarray,
    heads: int,
    head_dim: int,
    state_size: int,
    groups: int,
    a: np.ndarray,
    dt_limits: tuple[float, float],
    d: np.ndarray | None = None,
    dt_bias: np.ndarray | None = None,
) -> np.ndarray:
    inner, bc = heads * head_dim, groups * state_size
    x = source[:, :inner].astype(float).reshape(-1, heads, head_dim)
    b, c = (
        np.repeat(part.astype(float).reshape(-1, groups, state_size), heads // groups, axis=1)
        for part in (source[:, inner : inner + bc], source[:, inner + bc :])
    )
    dt = softplus(steps.astype(float) + (0 if dt_bias is None else dt_bias)).clip(*dt_limits)
    h, ys = np.zeros((heads, head_dim, state_size)), []
    for xt, bt, ct, dtt in zip(x, b, c, dt, strict=True):
        decay = np.exp(dtt * a)[:, None, None]
        h = decay * h + (dtt[:, None] * xt)[:, :, None] * bt[:, None]
        ys.append((h * ct[:, None]).sum(-1).ravel())
    skip = 0 if d is None else x.reshape(-1, inner) * np.repeat(d, inner // len(d))
    return np.stack(ys) + skip


def mamba1(
    source: np.ndarray, steps: np.ndarray, bc: np.ndarray, a: np.ndarray, d: np.ndarray
) -> np.ndarray:
    x, dt, size = source.astype(float), softplus(steps.astype(float)), a.shape[1]
    h, ys = np.zeros(a.shape), []
    for xt, dtt, both in zip(x, dt, bc.astype(float), strict=True):
        h = np.exp(dtt[:, None] * a) * h + (dtt * xt)[:, None] * both[:size]
        ys.append(h @ both[size:] + d * xt)
    return np.stack(ys)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def gated_delta(
    source: np.ndarray,
    decay: np.ndarray,
    beta: np.ndarray,
    key_heads: int,
    value_heads: int,
    key_dim: int,
    value_dim: int,
    a: np.ndarray,
    dt_bias: np.ndarray | None = None,
    beta_scale: float = 1.0,
) -> np.ndarray:
    keys, each = key_heads * key_dim, value_heads // key_heads
    q, k = (
        np.repeat(unit(part.astype(float).reshape(-1, key_heads, key_dim)), each, axis=1)
        for part in (source[:, :keys], source[:, keys : 2 * keys])
    )
    v = source[:, 2 * keys :].astype(float).reshape(-1, value_heads, value_dim)
    rate = softplus(decay.astype(float) + (0 if dt_bias is None else dt_bias))
    g = rate.reshape(len(v), value_heads, -1) * a[:, None]
    betas = beta_scale * sigmoid(beta.astype(float))
    state, ys = np.zeros((value_heads, key_dim, value_dim)), []
    for qt, kt, vt, gt, bt in zip(q * key_dim**-0.5, k, v, g, betas, strict=True):
        state = state * np.exp(gt)[:, :, None]
        change = (vt - np.einsum("hkv,hk->hv", state, kt)) * bt[:, None]
        state = state + kt[:, :, None] * change[:, None]
        ys.append(np.einsum("hkv,hk->hv", state, qt).ravel())
    return np.stack(ys)
