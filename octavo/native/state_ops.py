"""Mixers with a state, in a program. In a page a layer's convolution lies before its matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.models.memory import ITEMSIZE
from octavo.models.spec import (
    ConvolutionSpec,
    DeltaSpec,
    Mamba1Spec,
    Mamba2Spec,
    ParamSpec,
    ShortConvSpec,
)
from octavo.native.emitter import Emitter, Target


def short_conv(made: Emitter, layer: int, spec: ShortConvSpec, source: int, to: Target) -> None:
    program, width = made.program, spec.x.out_features
    gates = made.linears("in", "gates", source, [spec.b, spec.c])
    x = made.linears("in", "mixed", source, [spec.x])
    program.multiply("gate", x, gates, "none")
    y = _convolved(made, layer, spec.convolution, x)
    program.multiply("gate", y, gates, "none", column=width)
    made.linear("out", y, [spec.out], to)


def mamba1(made: Emitter, layer: int, spec: Mamba1Spec, source: int, to: Target) -> None:
    inner, state_size = spec.a_log.shape
    x = made.linears("in", "mixed", source, [spec.x])
    z = made.linears("in", "z", source, [spec.z])
    x = _convolved(made, layer, spec.convolution, x)
    down = made.linears("dt down", "dt down", x, [spec.dt_down])
    bc = made.linears("b c", "b c", x, [spec.b, spec.c])
    if spec.dt_norm is not None:
        made.norm(down, down, spec.dt_norm)
    for norm, column in ((spec.b_norm, 0), (spec.c_norm, state_size)):
        if norm is not None:
            made.norm(bc, bc, norm, column=column, columns=state_size)
    steps = made.linears("dt", "steps", down, [spec.dt])
    y = made.buffer("scanned", inner)
    made.program.scan_mamba1(
        "scan",
        y,
        x,
        steps,
        bc,
        **_place(made, layer, spec.convolution.kept),
        a=_minus_exp(made, spec.a_log),
        d=made.weights.vector(spec.d),
    )
    made.program.multiply("gate", y, z, "silu")
    made.linear("out", y, [spec.out], to)


def mamba2(made: Emitter, layer: int, spec: Mamba2Spec, source: int, to: Target) -> None:
    program = made.program
    z, steps = (
        made.linears("in", role, source, [linear])
        for role, linear in (("z", spec.z), ("steps", spec.dt))
    )
    x = _convolved(made, layer, spec.convolution, made.linears("in", "mixed", source, spec.mixed))
    y = made.buffer("scanned", spec.heads * spec.head_dim)
    program.scan_mamba2(
        "scan",
        y,
        x,
        steps,
        **_place(made, layer, spec.convolution.kept),
        heads=spec.heads,
        head_dim=spec.head_dim,
        state_size=spec.state_size,
        groups=spec.groups,
        a=_minus_exp(made, spec.a_log),
        d=made.weights.vector(spec.d),
        dt_bias=made.weights.vector(spec.dt_bias),
        dt_limits=spec.dt_limits,
    )
    if spec.norm is not None and spec.norm_before_gate:
        made.norm(y, y, spec.norm)
    program.multiply("gate", y, z, "silu")
    if spec.norm is not None and not spec.norm_before_gate:
        made.norm(y, y, spec.norm)
    made.linear("out", y, [spec.out], to)


def delta(made: Emitter, layer: int, spec: DeltaSpec, source: int, to: Target) -> None:
    decay, beta, z = (
        made.linears("in", role, source, [linear])
        for role, linear in (("decay", spec.decay), ("beta", spec.beta), ("z", spec.z))
    )
    x = _convolved(made, layer, spec.convolution, made.linears("in", "mixed", source, spec.mixed))
    y = made.buffer("scanned", spec.value_heads * spec.value_dim)
    made.program.gated_delta(
        "scan",
        y,
        x,
        decay,
        beta,
        **_place(made, layer, spec.convolution.kept),
        key_heads=spec.key_heads,
        value_heads=spec.value_heads,
        key_dim=spec.key_dim,
        value_dim=spec.value_dim,
        a=_minus_exp(made, spec.a_log),
        dt_bias=made.weights.vector(spec.dt_bias),
    )
    made.norm(y, y, spec.norm)
    made.program.multiply("gate", y, z, "silu")
    made.linear("out", y, [spec.out], to)


def _convolved(made: Emitter, layer: int, spec: ConvolutionSpec, source: int) -> int:
    to = made.buffer("convolved", spec.channels)
    made.program.convolve(
        "convolution",
        to,
        source,
        **_place(made, layer, 0),
        weight=made.weights.vector(spec.weight).reshape(spec.channels, -1),
        bias=made.vector(spec.bias),
        activation=spec.activation,
    )
    return to


def _place(made: Emitter, layer: int, before: int) -> dict[str, Any]:
    """Where a part of the layer's state begins, with so many numbers before it."""
    place = made.memory.states[layer]
    return {
        "memory": place.memory,
        "page_bytes": place.page_bytes,
        "offset": place.offsets[0] + before * ITEMSIZE["float32"],
        "group": place.group,
    }


def _minus_exp(made: Emitter, spec: ParamSpec) -> np.ndarray:
    found: np.ndarray = -np.exp(made.weights.vector(spec))
    return found
