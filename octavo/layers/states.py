"""Mixers that keep a state, as torch modules. Recurrences run token by token, so that nothing shows
where steps were cut. States are flat float32: the convolution's inputs, then the matrix."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from octavo.layers.context import StepContext
from octavo.layers.ops import Linear, Norm
from octavo.layers.params import Params
from octavo.models.spec import ConvolutionSpec, DeltaSpec, Mamba1Spec, Mamba2Spec, ShortConvSpec


class Convolution:
    """Causal depthwise convolution of one row: x [tokens, channels] and what came before it."""

    def __init__(self, spec: ConvolutionSpec, params: Params) -> None:
        self.spec = spec
        self.weight = params.get(spec.weight)
        self.bias = params.get(spec.bias) if spec.bias else None

    def __call__(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """`state`, the last inputs [length - 1, channels] flat, becomes those behind x."""
        before = state.view(-1, self.spec.channels)
        inputs = torch.cat((before.to(x.dtype), x))
        before.copy_(inputs[len(x) :])
        y = F.conv1d(inputs.T, self.weight, self.bias, groups=self.spec.channels).T
        return F.silu(y) if self.spec.activation == "silu" else y


class ShortConv:
    def __init__(self, spec: ShortConvSpec, index: int, params: Params) -> None:
        self.index = index
        self.b, self.c, self.x = (Linear(s, params) for s in (spec.b, spec.c, spec.x))
        self.convolution = Convolution(spec.convolution, params)
        self.out = Linear(spec.out, params)

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        mixed = self.b(x) * self.x(x)
        for tokens, state in ctx.states(self.index):
            mixed[tokens] = self.convolution(mixed[tokens], state)
        return self.out(self.c(x) * mixed)


class Mamba1:
    def __init__(self, spec: Mamba1Spec, index: int, params: Params) -> None:
        self.spec, self.index = spec, index
        self.x, self.z = Linear(spec.x, params), Linear(spec.z, params)
        self.convolution = Convolution(spec.convolution, params)
        self.down = [Linear(s, params) for s in (spec.dt_down, spec.b, spec.c)]
        norms = (spec.dt_norm, spec.b_norm, spec.c_norm)
        self.norms = [Norm(s, params) if s else None for s in norms]
        self.dt = Linear(spec.dt, params)
        self.a_log, self.d = params.get(spec.a_log), params.get(spec.d)
        self.out = Linear(spec.out, params)

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        mixed, z = self.x(x), self.z(x)
        y = torch.empty_like(mixed)
        kept = self.spec.convolution.kept
        for tokens, state in ctx.states(self.index):
            row = self.convolution(mixed[tokens], state[:kept])
            y[tokens] = self._scan(row, state[kept:].view(self.a_log.shape))
        return self.out(y * F.silu(z))

    def _scan(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """x: [tokens, inner]; state: [inner, state_size], changed in place."""
        parts = [linear(x) for linear in self.down]
        parts = [norm(p) if norm else p for norm, p in zip(self.norms, parts, strict=True)]
        dt, b, c = F.softplus(self.dt(parts[0]).float()), parts[1].float(), parts[2].float()
        a, d, wide = -self.a_log.float().exp(), self.d.float(), x.float()
        out = torch.empty_like(wide)
        for t in range(len(x)):
            state.mul_(torch.exp(dt[t, :, None] * a))
            state.add_((dt[t] * wide[t])[:, None] * b[t])
            out[t] = state @ c[t] + d * wide[t]
        return out.to(x.dtype)


class Mamba2:
    def __init__(self, spec: Mamba2Spec, index: int, params: Params) -> None:
        self.spec, self.index = spec, index
        self.z, self.dt = Linear(spec.z, params), Linear(spec.dt, params)
        self.mixed = [Linear(s, params) for s in spec.mixed]
        self.convolution = Convolution(spec.convolution, params)
        self.a_log, self.d = params.get(spec.a_log), params.get(spec.d)
        self.dt_bias = params.get(spec.dt_bias)
        self.norm = Norm(spec.norm, params) if spec.norm else None
        self.out = Linear(spec.out, params)

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        z, dt = self.z(x), self.dt(x)
        mixed = torch.cat([linear(x) for linear in self.mixed], -1)
        y = torch.empty_like(z)
        kept, spec = self.spec.convolution.kept, self.spec
        for tokens, state in ctx.states(self.index):
            row = self.convolution(mixed[tokens], state[:kept])
            matrix = state[kept:].view(spec.heads, spec.head_dim, spec.state_size)
            y[tokens] = self._scan(row, dt[tokens], matrix)
        return self.out(self._gated(y, z))

    def _gated(self, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        if self.norm is None:
            return y * F.silu(z)
        if self.spec.norm_before_gate:
            return self.norm(y) * F.silu(z)
        return self.norm(y * F.silu(z))

    def _scan(self, row: torch.Tensor, dt: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """row: [tokens, x B C]; dt: [tokens, heads]; state: [heads, head_dim, state_size], changed
        in place."""
        spec = self.spec
        sizes = [spec.heads * spec.head_dim, *[spec.groups * spec.state_size] * 2]
        x, b, c = torch.split(row.float(), sizes, -1)
        x = x.view(-1, spec.heads, spec.head_dim)
        together = spec.heads // spec.groups
        b, c = (
            v.view(-1, spec.groups, spec.state_size).repeat_interleave(together, 1) for v in (b, c)
        )
        steps = F.softplus(dt.float() + self.dt_bias.float()).clamp(*spec.dt_limits)
        decay = torch.exp(-self.a_log.float().exp() * steps)
        out = torch.empty_like(x)
        for t in range(len(x)):
            state.mul_(decay[t, :, None, None])
            state.add_((steps[t, :, None] * x[t])[..., None] * b[t][:, None])
            out[t] = (state @ c[t][..., None])[..., 0] + self.d.float()[:, None] * x[t]
        return out.flatten(1).to(row.dtype)


class Delta:
    def __init__(self, spec: DeltaSpec, index: int, params: Params) -> None:
        self.spec, self.index = spec, index
        self.mixed = [Linear(s, params) for s in spec.mixed]
        self.convolution = Convolution(spec.convolution, params)
        self.decay, self.beta = Linear(spec.decay, params), Linear(spec.beta, params)
        self.a_log, self.dt_bias = params.get(spec.a_log), params.get(spec.dt_bias)
        self.z, self.norm = Linear(spec.z, params), Norm(spec.norm, params)
        self.out = Linear(spec.out, params)

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        mixed = torch.cat([linear(x) for linear in self.mixed], -1)
        steps = F.softplus(self.decay(x).float() + self.dt_bias.float())
        decay, beta = (-self.a_log.float().exp() * steps).exp(), self.beta(x).float().sigmoid()
        z = self.z(x)
        y = torch.empty_like(z)
        kept, spec = self.spec.convolution.kept, self.spec
        for tokens, state in ctx.states(self.index):
            row = self.convolution(mixed[tokens], state[:kept])
            matrix = state[kept:].view(spec.value_heads, spec.key_dim, spec.value_dim)
            y[tokens] = self._scan(row, decay[tokens], beta[tokens], matrix)
        return self.out(self.norm(y) * F.silu(z))

    def _scan(
        self, row: torch.Tensor, decay: torch.Tensor, beta: torch.Tensor, state: torch.Tensor
    ) -> torch.Tensor:
        """row: [tokens, q k v]; decay, beta: [tokens, value_heads]; state: [value_heads, key_dim,
        value_dim], changed in place."""
        spec = self.spec
        keys = spec.key_heads * spec.key_dim
        sizes = [keys, keys, spec.value_heads * spec.value_dim]
        q, k, v = torch.split(row.float(), sizes, -1)
        together = spec.value_heads // spec.key_heads
        q, k = (
            _unit(x.view(-1, spec.key_heads, spec.key_dim)).repeat_interleave(together, 1)
            for x in (q, k)
        )
        q, v = q * spec.key_dim**-0.5, v.view(-1, spec.value_heads, spec.value_dim)
        out = torch.empty_like(v)
        for t in range(len(v)):
            state.mul_(decay[t, :, None, None])
            known = (state * k[t][..., None]).sum(-2)
            state.add_(k[t][..., None] * ((v[t] - known) * beta[t, :, None])[:, None])
            out[t] = (state * q[t][..., None]).sum(-2)
        return out.flatten(1).to(row.dtype)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
