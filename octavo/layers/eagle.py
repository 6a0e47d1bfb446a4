"""An EAGLE-3 head in torch."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from octavo.layers.attention import Attention
from octavo.layers.context import StepContext
from octavo.layers.decoder import Branch
from octavo.layers.ops import Linear, Norm
from octavo.layers.params import Params
from octavo.models.eagle import EagleSpec


class EagleHead:
    """T tokens and what is in mind before each [T, hidden] -> logits [S, drafted tokens] of chosen
    tokens, and what is in mind then [S, hidden]."""

    def __init__(self, spec: EagleSpec, params: Params, embedding: torch.Tensor | None) -> None:
        """`embedding`: the target's, where the head has none of its own."""
        self.spec = spec
        self.embedding = params.get(spec.embedding) if embedding is None else embedding
        self.fc = Linear(spec.fc, params)
        self.token_norm, self.mind_norm = (
            Norm(norm, params) for norm in (spec.token_norm, spec.mind_norm)
        )
        self.attention = Attention(spec.attention, 0, params)
        self.feed = Branch(spec.feed, 0, params)
        self.norm, self.head = Norm(spec.norm, params), Linear(spec.head, params)

    def __call__(
        self, token_ids: torch.Tensor, mind: torch.Tensor, ctx: StepContext, chosen: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self.token_norm(F.embedding(token_ids, self.embedding))
        normed = self.mind_norm(mind)
        x = normed if self.spec.normed_stream else mind
        x = x + self.attention(torch.cat((tokens, normed), -1), ctx)
        x = (x + self.feed(x, ctx))[chosen]
        return self.head(self.norm(x)).float(), x
