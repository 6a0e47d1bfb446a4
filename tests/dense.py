"""A torch decoder over one sequence, its keys, values and states in plain tensors: no pages."""

from __future__ import annotations

from typing import Any

import torch

from octavo.attention.reference import attend, visible
from octavo.files.model_files import ModelFiles
from octavo.layers.context import StepContext
from octavo.layers.decoder import Decoder
from octavo.layers.params import Params
from octavo.models.families import model_spec
from octavo.weights.open import open_checkpoint
from octavo.weights.parameters import Parameters


class DenseModel:
    """`logits` continues the sequence, in one step."""

    def __init__(self, files: ModelFiles, longest: int | None = None) -> None:
        self.spec = model_spec(files, "float32", longest)
        params = Params(torch.float32, torch.device("cpu"))
        self.decoder = Decoder(self.spec, params)
        checkpoint = open_checkpoint(files, "auto", self.spec, 0)
        params.load(Parameters(self.spec, checkpoint).read)
        self._kv: dict[int, list[Any]] = {}
        self._states = {n: torch.zeros(op.kept) for n, op in self.spec.states.items()}
        self._done = 0

    @torch.inference_mode()
    def logits(self, ids: list[int]) -> torch.Tensor:
        """[len(ids), vocab]"""
        positions = torch.arange(self._done, self._done + len(ids))
        states = lambda layer: [(slice(0, len(ids)), self._states[layer])]  # noqa: E731
        context = StepContext(positions, self._attend, states)
        out = self.decoder(torch.tensor(ids), context, torch.arange(len(ids)))
        self._done += len(ids)
        return out

    def _attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,
        *,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        how = self.spec.attends[layer]
        before = self._kv.get(layer, [k[:0], None if v is None else v[:0]])
        k = torch.cat((before[0], k))
        v = None if v is None else torch.cat((before[1], v))
        self._kv[layer] = [k, v]
        first = how.oldest(self._done)
        keys = k[first:].transpose(0, 1)
        if v is None:
            values = keys[..., how.value_column :][..., : how.v_head_dim]
        else:
            values = v[first:].transpose(0, 1)
        mask = visible(self._done, len(k), how, k.device)
        return attend(q, keys, values, mask, how, sinks)
