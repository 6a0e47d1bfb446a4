"""Rotary position frequencies from a config's parameters: default, linear, llama3, yarn, longrope.

Computed in float32, operation by operation as Transformers does, so that the angles agree at any
position: a last-bit difference in a frequency is a visible angle at position 100,000.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from octavo.base.errors import ModelError
from octavo.models.config import Config, flag, integer, number, section, value
from octavo.models.spec import RopeSpec

_COMMON = {
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "freq_factors",
    "finetuned",
    "max_position_embeddings",
    "llama_4_scaling_beta",  # a matter of queries, not of angles
}
_OWN = {
    "default": {"factor"},  # some files keep the factor of a scaling that is off
    "linear": {"factor", "original_max_position_embeddings"},
    "llama3": {
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    },
    "yarn": {
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    },
    "longrope": {
        "factor",
        "short_factor",
        "long_factor",
        "attention_factor",
        "short_mscale",
        "long_mscale",
        "original_max_position_embeddings",
    },
}


def rope_parameters(config: Config, layer_type: str | None = None) -> dict[str, Any]:
    """The parameters in one dictionary, whichever style the config is written in.

    Transformers 5 has `rope_parameters` with the theta inside, or such an object for each type of
    layer; before, `rope_theta` stood beside an optional `rope_scaling`. `rope_scaling` wins where
    a file has both, as it does there.

    Raises:
        ModelError: the rope type or one of its parameters is unknown.
    """
    found = section(config, "rope_scaling") or section(config, "rope_parameters") or {}
    if "full_attention" in found:
        found = section(found, layer_type or "full_attention") or {}
    partial = value(config, "partial_rotary_factor", "rotary_pct")
    rope = {
        "rope_theta": value(config, "rope_theta", "rotary_emb_base"),
        "partial_rotary_factor": partial,
        **found,
    }
    rope = {name: entry for name, entry in rope.items() if entry is not None}
    kind = rope.setdefault("rope_type", rope.get("type", "default"))
    kind = rope["rope_type"] = {"su": "longrope"}.get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, str) or kind not in _OWN:
        raise ModelError(f"config: rope type {kind!r} is not supported; known: {', '.join(_OWN)}")
    for name in rope.keys() - _COMMON - _OWN[kind]:
        raise ModelError(f"config: {name} is not known for rope type {kind!r}")
    return rope


def rope_spec(config: Config, head_dim: int, layer_type: str | None = None) -> RopeSpec:
    """Frequencies for heads of `head_dim` elements, or the part of them that turns; in layers of
    `layer_type` where the config tells types apart.

    Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), LongRoPE (arXiv 2402.13753),
    Llama 3.1's release notes.

    Raises:
        ModelError: the rope type is unknown, or a parameter is missing, unknown or impossible.
    """
    rope = {"original_max_position_embeddings": None, **rope_parameters(config, layer_type)}
    turning = int(head_dim * number(rope, "partial_rotary_factor", default=1.0))
    if turning % 2 or not 0 < turning <= head_dim:
        raise ModelError(f"config: {turning} of head_dim {head_dim} cannot turn in pairs")
    longest = integer(config, "max_position_embeddings")
    if rope["original_max_position_embeddings"] is None:
        rope["original_max_position_embeddings"] = longest
    outer = value(config, "original_max_position_embeddings")
    if outer is not None and rope["rope_type"] in ("llama3", "yarn", "longrope"):
        rope["original_max_position_embeddings"] = outer
    rope |= {"max_position_embeddings": longest, "longest_sequence": config.get("longest_sequence")}
    scale = _SCALINGS[rope["rope_type"]]
    inv_freq, attention_factor = scale(rope, _plain(rope, turning))
    return RopeSpec(turning, tuple(inv_freq.tolist()), attention_factor)


def scaled_length(config: Config) -> int:
    """Positions the model was made for: files with linear or YaRN scaling often keep the length
    from before it in `max_position_embeddings`."""
    length = integer(config, "max_position_embeddings")
    rope = rope_parameters(config)
    if rope["rope_type"] == "linear":
        return int(length * number(rope, "factor"))
    if rope["rope_type"] == "yarn":
        original = integer(rope, "original_max_position_embeddings", default=length)
        return max(length, int(original * number(rope, "factor")))
    return length


def _plain(rope: Config, head_dim: int) -> np.ndarray:
    """theta ** (-2i / head_dim): [head_dim / 2] float32; divided by a GGUF file's own factors."""
    steps = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    inv_freq = np.float32(1) / np.float32(number(rope, "rope_theta", default=10000.0)) ** steps
    factors = rope.get("freq_factors")
    if factors is None:
        return inv_freq
    if len(factors) != head_dim // 2 or rope["rope_type"] not in ("default", "linear"):
        raise ModelError(
            f"rope_freqs.weight: {len(factors)} factors do not fit head_dim {head_dim} "
            f"and rope type {rope['rope_type']!r}"
        )
    return inv_freq / np.asarray(factors, np.float32)


def _default(rope: Config, inv_freq: np.ndarray) -> tuple[np.ndarray, float]:
    return inv_freq, 1.0


def _linear(rope: Config, inv_freq: np.ndarray) -> tuple[np.ndarray, float]:
    return inv_freq / np.float32(number(rope, "factor")), 1.0


def _llama3(rope: Config, inv_freq: np.ndarray) -> tuple[np.ndarray, float]:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended."""
    factor = np.float32(number(rope, "factor"))
    low, high = number(rope, "low_freq_factor"), number(rope, "high_freq_factor")
    context = number(rope, "original_max_position_embeddings")
    wavelength = np.float32(2 * math.pi) / inv_freq
    stretched = np.where(wavelength > np.float32(context / low), inv_freq / factor, inv_freq)
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing lies between equal factors
        share = (np.float32(context) / wavelength - np.float32(low)) / np.float32(high - low)
        blended = (1 - share) * stretched / factor + share * stretched
    between = (wavelength >= np.float32(context / high)) & (wavelength <= np.float32(context / low))
    return np.where(between, blended, stretched), 1.0


def _yarn(rope: Config, inv_freq: np.ndarray) -> tuple[np.ndarray, float]:
    """Fast dimensions extrapolate, slow ones interpolate, a linear ramp lies between."""
    factor = number(rope, "factor")
    pairs = len(inv_freq)
    low, high = _yarn_range(rope, 2 * pairs)
    width = np.float32(high - low) if high != low else np.float32(0.001)
    ramp = (np.arange(pairs, dtype=np.float32) - np.float32(low)) / width
    keep = 1 - np.clip(ramp, np.float32(0), np.float32(1))
    positions = np.float32(number(rope, "rope_theta", default=10000.0)) ** (
        np.arange(0, 2 * pairs, 2, dtype=np.float32) / np.float32(2 * pairs)
    )
    interpolated = np.float32(1) / (np.float32(factor) * positions)
    return interpolated * (1 - keep) + inv_freq * keep, _yarn_attention(rope, factor)


def _longrope(rope: Config, inv_freq: np.ndarray) -> tuple[np.ndarray, float]:
    """A factor for each frequency: those for long contexts where sequences may be longer than the
    original one. One choice holds for all of them, since what is cached must not turn about."""
    original = number(rope, "original_max_position_embeddings")
    longest = number(rope, "max_position_embeddings")
    which = "long" if number(rope, "longest_sequence", default=longest) > original else "short"
    factors = rope.get(f"{which}_factor")
    if not isinstance(factors, list) or len(factors) != len(inv_freq):
        raise ModelError(f"config: {which}_factor must be {len(inv_freq)} numbers")
    factor = number(rope, "factor", default=longest / original)
    attention = value(rope, "attention_factor", f"{which}_mscale")
    if attention is None:
        spread = math.log(factor) / math.log(original)
        attention = math.sqrt(1 + spread) if factor > 1 else 1.0
    return inv_freq / np.asarray(factors, np.float32), float(attention)


def _yarn_range(rope: Config, dim: int) -> tuple[float, float]:
    """Dimensions that turn `beta_fast` and `beta_slow` times within the original context."""
    theta = number(rope, "rope_theta", default=10000.0)
    context = number(rope, "original_max_position_embeddings")

    def turning(times: float) -> float:
        return dim * math.log(context / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = turning(number(rope, "beta_fast", default=32))
    high = turning(number(rope, "beta_slow", default=1))
    if flag(rope, "truncate", True):
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, dim - 1)


def _yarn_attention(rope: Config, factor: float) -> float:
    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    given = rope.get("attention_factor")
    if given is not None:
        return float(given)
    one, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    return mscale(one) / mscale(all_dim) if one and all_dim else mscale(1.0)


_SCALINGS: dict[str, Callable[[Config, np.ndarray], tuple[np.ndarray, float]]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
