"""What is done to each token alone, in a program: MLPs and mixtures of them."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.models.spec import ExpertsSpec, LinearSpec, MlpSpec
from octavo.native.emitter import Emitter, Target
from octavo.native.interface import ExpertLinear


def mlp(made: Emitter, layer: int, spec: MlpSpec, source: int, to: Target) -> None:
    """The gate of all that comes out multiplies what goes into the last linear: the same, and
    less work."""
    program, inner = made.program, made.buffer("inner", spec.up.out_features)
    if spec.gate is not None:
        gate, up = made.part(spec.gate), made.part(spec.up)
        program.gated("gate_up", inner, source, gate, up, spec.activation)
    else:
        made.linear("up", source, [spec.up], Target(inner, False))
        program.activate("activation", inner, spec.activation)
    if spec.gate_all is not None:
        assert spec.down.bias is None, "a bias must not be gated"
        gate_all = made.linears("gate", "gate of all", source, [spec.gate_all])
        program.multiply("gate", inner, gate_all, "sigmoid")
    made.linear("down", inner, [spec.down], to)


def experts(made: Emitter, layer: int, spec: ExpertsSpec, source: int, to: Target) -> None:
    assert to.add, "experts add to what is there"
    router, [scale] = spec.router, {down.scale for down in spec.downs}
    logits = made.linears("router", "router", source, [router.linear])
    routes = made.program.route(
        "route",
        logits,
        top_k=router.top_k,
        scoring=router.scoring,
        normalise=router.normalise,
        eps=router.eps,
        scale=router.scale * scale,
        bias=made.vector(router.bias),
        groups=router.groups,
        top_groups=router.top_groups,
        group_score=router.group_score,
    )
    made.program.experts(
        "experts",
        to.buffer,
        source,
        routes,
        _plain(made, spec.gates),
        _plain(made, spec.ups),
        _plain(made, spec.downs),
        spec.activation,
        limit=spec.limit,
        shift=spec.shift,
        weigh_input=spec.weigh_input,
    )


def _plain(made: Emitter, specs: Sequence[LinearSpec]) -> list[ExpertLinear]:
    return [made.part(spec)[:2] for spec in specs]
