"""Mixtures of experts as families' files name them: each expert's linears, or all in one tensor."""

from __future__ import annotations

from octavo.base.errors import ModelError
from octavo.models.build import Build
from octavo.models.config import Config, flag, integer, integers
from octavo.models.spec import ExpertsSpec, LinearSpec, ParamSpec, Part, RouterSpec


def router(
    build: Build, name: str, experts: int, *, bias_too: bool = False, **more: object
) -> RouterSpec:
    """`name`: of the linear, which may have a bias too. `more`: fields of RouterSpec that are not
    the plain ones."""
    top_k = integer(build.config, "num_experts_per_tok", "top_k_experts")
    if top_k > experts:
        raise ModelError(f"config: num_experts_per_tok={top_k} of {experts} experts")
    plain = {
        "linear": build.linear(name, experts, build.hidden, bias_too),
        "top_k": top_k,
        "scoring": "softmax",
        "normalise": True,
    }
    return RouterSpec(**{**plain, **more})  # type: ignore[arg-type]


def own_experts(
    build: Build,
    path: str,
    experts: int,
    inner: int,
    router: RouterSpec,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
) -> ExpertsSpec:
    """Experts each with tensors of their own: `path`.E.gate_proj and so on."""
    gate, up, down = names
    each = range(experts)
    hidden, scale = build.hidden, build.traits.residual_scale
    return ExpertsSpec(
        router,
        tuple(build.linear(f"{path}.{e}.{gate}", inner, hidden, bias) for e in each),
        tuple(build.linear(f"{path}.{e}.{up}", inner, hidden, bias) for e in each),
        tuple(build.linear(f"{path}.{e}.{down}", hidden, inner, bias, scale) for e in each),
        build.activation,
    )


def joined(
    name: str,
    tensor: str,
    shape: tuple[int, int, int],
    expert: int,
    rows: slice = slice(None),
    *,
    turned: bool = False,
    bias: str | None = None,
    scale: float = 1.0,
) -> LinearSpec:
    """An expert's linear in a tensor of all experts, [experts, out, in], or [experts, in, out]
    where it is `turned`. `rows`: those of the outputs, by start, stop and step; a step of 2 takes
    every other one. `bias`: the tensor [experts, out]."""
    out = shape[2] if turned else shape[1]
    inputs = shape[1] if turned else shape[2]
    start, stop, step = rows.indices(out)
    count = len(range(start, stop, step))
    take, every = (1, step) if step > 1 else (count, None)
    part = Part(
        tensor, shape, expert, "before" if turned else None, start=start, take=take, every=every
    )
    weight = ParamSpec(f"{name}.weight", (count, inputs), part)
    if bias is None:
        return LinearSpec(weight, None, scale)
    offset = Part(bias, (shape[0], out), expert, start=start, take=take, every=every)
    return LinearSpec(weight, ParamSpec(f"{name}.bias", (count,), offset), scale)


def joined_experts(
    build: Build,
    path: str,
    experts: int,
    router: RouterSpec,
    tensors: tuple[str, str],
    *,
    turned: bool = False,
    interleaved: bool = False,
    biased: bool = False,
) -> ExpertsSpec:
    """Experts whose gates and ups are the first of two `tensors`, and whose downs are the second;
    see `joined`. Gates come before ups, or in turn with them where they are `interleaved`. The
    tensors of biases are called the same with `_bias` behind."""
    inner, hidden, (into, out) = build.inner, build.hidden, tensors
    gates, ups = slice(0, inner), slice(inner, 2 * inner)
    if interleaved:
        gates, ups = slice(0, None, 2), slice(1, None, 2)

    def each(
        name: str, tensor: str, size: tuple[int, int], rows: slice, scale: float = 1.0
    ) -> tuple[LinearSpec, ...]:
        shape = (experts, *(size[::-1] if turned else size))
        bias = f"{tensor}_bias" if biased else None
        return tuple(
            joined(
                f"{path}.{e}.{name}", tensor, shape, e, rows, turned=turned, bias=bias, scale=scale
            )
            for e in range(experts)
        )

    return ExpertsSpec(
        router,
        each("gate", into, (2 * inner, hidden), gates),
        each("up", into, (2 * inner, hidden), ups),
        each("down", out, (hidden, inner), slice(None), build.traits.residual_scale),
        build.activation,
    )


def is_sparse(config: Config, layer: int) -> bool:
    """Whether a layer has experts (Qwen's way to say it)."""
    dense = integers(config, "mlp_only_layers") or []
    return (
        layer not in dense and (layer + 1) % integer(config, "decoder_sparse_step", default=1) == 0
    )


def normalises(config: Config, default: bool = False) -> bool:
    return flag(config, "norm_topk_prob", default)
