"""Runs batches through torch modules. Knows tensors and devices; nothing of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch

from octavo.attention.backend import AttentionBackend
from octavo.attention.reference import ReferenceAttention
from octavo.attention.states import StatePages
from octavo.base.kv import KVLayout
from octavo.base.output import OpCost
from octavo.layers.context import StepContext
from octavo.layers.decoder import Decoder
from octavo.layers.params import Params
from octavo.models.beside import NOTHING, Beside
from octavo.models.spec import ModelSpec
from octavo.sampling.processors import NO_PROCESSORS, Processors
from octavo.sampling.rows import Drawn, SamplingRow
from octavo.sampling.sampler import sample
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.parameters import Parameters
from octavo.worker.batch import Batch


def use_threads(count: int) -> None:
    """CPU threads that this process computes with."""
    torch.set_num_threads(count)


class TorchRunner:
    """A model with its weights and its KV cache on one device, where another one may live
    `beside` it."""

    def __init__(
        self,
        spec: ModelSpec,
        layout: KVLayout,
        checkpoint: Checkpoint,
        dtype: str,
        kv_dtype: str,
        device: str,
        watch: Callable[[Iterable[str]], Iterable[str]] = lambda names: names,
        beside: Beside = NOTHING,
    ) -> None:
        self.device = torch.device(device)
        self._params = Params(getattr(torch, dtype), self.device)
        self._model = Decoder(spec, self._params, beside.features)
        self._spec = spec
        self._params.load(Parameters(spec, checkpoint).read, watch)
        self.attention: AttentionBackend = ReferenceAttention(
            {**spec.attends, **beside.attends}, layout, kv_dtype, self.device
        )
        kept = {n: op.kept for n, op in spec.states.items()}
        self._states = StatePages(kept, layout, self.attention.pools)

    @torch.inference_mode()
    def update(self, checkpoint: Checkpoint) -> None:
        """Other weights in the place of these; KV memory stays."""
        self._params.load(Parameters(self._spec, checkpoint).read)

    def pages(self, pool: int) -> np.ndarray:
        """Raises TypeError where they are on a GPU."""
        return self.attention.pools[pool].numpy()

    def copy(self, pool: int, sources: list[int], targets: list[int]) -> None:
        pages = self.attention.pools[pool]
        pages[targets] = pages[sources]

    @torch.inference_mode()
    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute one step; logits [S, vocab] float32 of the rows that sample."""
        rows = batch.attention
        context = StepContext(
            self._tensor(batch.positions),
            partial(self.attention.run, self.attention.plan(rows)),
            partial(self._states.rows, rows),
        )
        return self._model(self._tensor(batch.token_ids), context, self._tensor(batch.chosen))

    @torch.inference_mode()
    def sample(
        self,
        logits: torch.Tensor,
        rows: list[SamplingRow],
        processors: Processors = NO_PROCESSORS,
    ) -> list[Drawn]:
        return sample(logits, rows, processors)

    def costs(self) -> list[OpCost]:
        return []

    @property
    def embedding(self) -> torch.Tensor:
        return self._model.embedding

    def features(self) -> np.ndarray:
        """What the step before has told: [T, hidden of each layer side by side] float32."""
        told: np.ndarray = self._model.told.float().cpu().numpy()
        return told

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)
