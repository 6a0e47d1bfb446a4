"""State-space mixers as families' files name them: a linear `in_proj` of several parts, a
convolution, the state's own parameters, and a linear `out_proj`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from octavo.base.errors import ModelError
from octavo.models.build import Build
from octavo.models.config import Config, flag, integer, value
from octavo.models.spec import (
    ConvolutionSpec,
    LinearSpec,
    Mamba1Spec,
    Mamba2Spec,
    ParamSpec,
)
from octavo.models.state_bytes import kernel, mamba1_channels, mamba2_sizes, state_size


def convolution(
    name: str,
    channels: int,
    length: int,
    bias: bool,
    activation: Literal["none", "silu"] = "silu",
) -> ConvolutionSpec:
    return ConvolutionSpec(
        ParamSpec(f"{name}.weight", (channels, 1, length)),
        ParamSpec(f"{name}.bias", (channels,)) if bias else None,
        activation,
    )


def parts(
    build: Build,
    tensor: str,
    columns: int,
    rows: Mapping[str, int],
    bias: bool = False,
    *,
    scales: Iterable[float] = (),
    heads: int = 1,
) -> list[LinearSpec]:
    """The linear `tensor` as several, by name and number of rows: one after another, in each of
    so many heads."""
    total, start, found = sum(rows.values()), 0, []
    shape, every = (heads * total, columns), total if heads > 1 else None
    for (name, take), scale in zip(rows.items(), scales or [1.0] * len(rows), strict=True):
        part = build.cut(f"{tensor}.{name}", tensor, shape, start, take, bias, scale, every)
        found.append(part)
        start += take
    return found


def mamba1(build: Build, path: str, bias: bool) -> Mamba1Spec:
    """`bias`: of `in_proj` and `out_proj`."""
    config, hidden, inner = build.config, build.hidden, mamba1_channels(build.config)
    size, rank = state_size(config), _rank(config, hidden)
    x, z = parts(build, f"{path}.in_proj", hidden, {"x": inner, "z": inner}, bias)
    rows = {"dt": rank, "b": size, "c": size}
    dt_down, b, c = parts(build, f"{path}.x_proj", inner, rows)
    return Mamba1Spec(
        x=x,
        z=z,
        convolution=_convolution(config, path, inner),
        dt_down=dt_down,
        b=b,
        c=c,
        dt=build.linear(f"{path}.dt_proj", inner, rank, bias=True),
        a_log=ParamSpec(f"{path}.A_log", (inner, size)),
        d=ParamSpec(f"{path}.D", (inner,)),
        out=build.linear(f"{path}.out_proj", hidden, inner, bias, build.traits.residual_scale),
    )


def mamba2(
    build: Build,
    path: str,
    bias: bool,
    *,
    out_bias: bool | None = None,
    normed: bool = True,
    norm_before_gate: bool = False,
    scales: tuple[float, ...] = (),
    dt_limits: tuple[float, float] | None = None,
) -> Mamba2Spec:
    """`bias`: of `in_proj`, and of `out_proj` without an `out_bias`; `scales`: of z, x, B, C and
    dt; `dt_limits`: else those of the config."""
    config, hidden = build.config, build.hidden
    sizes = mamba2_sizes(config)
    heads, inner, shared = sizes.heads, sizes.channels, sizes.groups * sizes.state_size
    rows = {"z": inner, "x": inner, "b": shared, "c": shared, "dt": heads}
    z, *mixed, dt = parts(build, f"{path}.in_proj", hidden, rows, bias, scales=scales)
    return Mamba2Spec(
        heads=heads,
        head_dim=inner // heads,
        state_size=sizes.state_size,
        groups=sizes.groups,
        z=z,
        mixed=tuple(mixed),
        dt=dt,
        convolution=_convolution(config, path, sizes.convolved),
        a_log=ParamSpec(f"{path}.A_log", (heads,)),
        d=ParamSpec(f"{path}.D", (heads,)),
        dt_bias=ParamSpec(f"{path}.dt_bias", (heads,)),
        dt_limits=dt_limits or _limits(config),
        norm=build.norm(f"{path}.norm", inner, sizes.groups) if normed else None,
        norm_before_gate=norm_before_gate,
        out=build.linear(
            f"{path}.out_proj",
            hidden,
            inner,
            bias if out_bias is None else out_bias,
            build.traits.residual_scale,
        ),
    )


def _convolution(config: Config, path: str, channels: int) -> ConvolutionSpec:
    if value(config, "mamba_hidden_act", "hidden_act") not in (None, "silu", "swish"):
        raise ModelError("config: after a convolution only silu is supported")
    own = value(config, "mamba_conv_bias", "use_conv_bias")
    bias = flag({"use_conv_bias": own}, "use_conv_bias", True)
    return convolution(f"{path}.conv1d", channels, kernel(config), bias)


def _rank(config: Config, hidden: int) -> int:
    """Numbers that the steps of all channels are made of."""
    if value(config, "mamba_dt_rank", "time_step_rank") in (None, "auto"):
        return math.ceil(hidden / 16)
    return integer(config, "mamba_dt_rank", "time_step_rank")


def _limits(config: Config) -> tuple[float, float]:
    """Of the steps. JSON has no infinity: newer files write it as an object."""
    found: Any = value(config, "time_step_limit", "mamba_dt_limit")
    if found is None:
        return 0.0, math.inf
    try:
        low, high = (float(x["__float__"] if isinstance(x, Mapping) else x) for x in found)
    except (TypeError, ValueError, KeyError) as error:
        raise ModelError(f"config: time_step_limit must be two numbers, got {found!r}") from error
    return low, high
