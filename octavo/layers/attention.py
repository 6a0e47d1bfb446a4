"""Attention as torch modules: q, k and v of each token, what is mixed, and the way back."""

from __future__ import annotations

import torch

from octavo.layers.context import StepContext
from octavo.layers.ops import Linear, Norm, rotate
from octavo.layers.params import Params
from octavo.models.spec import AttentionSpec, LatentAttentionSpec, TemperSpec


class Attention:
    """[T, hidden] -> [T, hidden], through the step's attention over paged KV."""

    def __init__(self, spec: AttentionSpec, index: int, params: Params) -> None:
        self.spec = spec
        self.index = index
        self.q, self.k, self.v = (Linear(s, params) for s in (spec.q, spec.k, spec.v))
        self.o = Linear(spec.o, params)
        self.gate = Linear(spec.gate, params) if spec.gate else None
        self.q_norm = Norm(spec.q_norm, params) if spec.q_norm else None
        self.k_norm = Norm(spec.k_norm, params) if spec.k_norm else None
        self.sinks = params.get(spec.sinks) if spec.sinks else None

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        spec, shape = self.spec, self.spec.attend
        q = self._turned(self.q(x), shape.num_heads, self.q_norm, ctx)
        k = self._turned(self.k(x), shape.num_kv_heads, self.k_norm, ctx)
        v = self.v(x).view(len(x), shape.num_kv_heads, shape.v_head_dim)
        if spec.temper is not None:
            q = q * _temper(spec.temper, ctx.positions)[:, None, None].to(q.dtype)
        mixed = ctx.attend(self.index, q, k, v, sinks=self.sinks).flatten(-2)
        if self.gate is not None:
            mixed = mixed * torch.sigmoid(self.gate(x))
        return self.o(mixed)

    def _turned(
        self, x: torch.Tensor, heads: int, norm: Norm | None, ctx: StepContext
    ) -> torch.Tensor:
        spec = self.spec
        if norm is not None and not spec.norm_after_rope:
            x = norm(x)
        x = x.view(len(x), heads, spec.attend.head_dim)
        if spec.rope is not None:
            x = rotate(x, *ctx.rope(spec.rope, x.dtype))
        if norm is not None and spec.norm_after_rope:
            x = norm(x.flatten(-2)).view(x.shape)
        return x


def _temper(spec: TemperSpec, positions: torch.Tensor) -> torch.Tensor:
    steps = torch.floor((positions.float() + spec.offset) / spec.length)
    return 1 + spec.scale * torch.log(steps + 1)


class LatentAttention:
    """[T, hidden] -> [T, hidden]; queries meet the latents themselves."""

    def __init__(self, spec: LatentAttentionSpec, index: int, params: Params) -> None:
        self.spec = spec
        self.index = index
        self.q_down = Linear(spec.q_down, params) if spec.q_down else None
        self.q_down_norm = Norm(spec.q_down_norm, params) if spec.q_down_norm else None
        self.q_rotary = [Linear(head, params) for head in spec.q_rotary]
        self.q_plain = Linear(spec.q_plain, params)
        self.k_rotary, self.latent = Linear(spec.k_rotary, params), Linear(spec.latent, params)
        self.latent_norm = Norm(spec.latent_norm, params)
        self.k_up = params.stack([linear.weight for linear in spec.k_up])
        self.v_up = params.stack([linear.weight for linear in spec.v_up])
        self.o = Linear(spec.o, params)

    def __call__(self, x: torch.Tensor, ctx: StepContext) -> torch.Tensor:
        heads, cos_sin = self.spec.attend.num_heads, ctx.rope(self.spec.rope, x.dtype)
        asked = self.q_down(x) if self.q_down else x
        asked = self.q_down_norm(asked) if self.q_down_norm else asked
        turning = rotate(torch.stack([head(asked) for head in self.q_rotary], 1), *cos_sin)
        plain = self.q_plain(asked).view(len(x), heads, -1)
        latent_q = torch.einsum("thp,hlp->thl", plain, self.k_up)
        key = rotate(self.k_rotary(x)[:, None], *cos_sin)
        latent = self.latent_norm(self.latent(x))[:, None]
        mixed = ctx.attend(
            self.index, torch.cat((turning, latent_q), -1), torch.cat((key, latent), -1), None
        )
        return self.o(torch.einsum("thl,hvl->thv", mixed, self.v_up).flatten(-2))
