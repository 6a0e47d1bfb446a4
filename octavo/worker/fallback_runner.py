"""Runs batches through a Transformers model. Knows tensors and devices; nothing of plans."""

from __future__ import annotations

import numpy as np
import torch

from octavo.attention.reference import ReferenceAttention
from octavo.base.kv import KVLayout
from octavo.base.output import OpCost
from octavo.fallback.loading import Watch
from octavo.fallback.model import FallbackModel
from octavo.fallback.packed import PackedModel, Paged
from octavo.sampling.processors import NO_PROCESSORS, Processors
from octavo.sampling.rows import Drawn, SamplingRow
from octavo.sampling.sampler import sample
from octavo.weights.checkpoint import Checkpoint
from octavo.worker.batch import Batch


class FallbackRunner:
    """A model with its weights and its KV cache on one device."""

    def __init__(
        self,
        model: FallbackModel,
        layout: KVLayout,
        checkpoint: Checkpoint,
        dtype: str,
        kv_dtype: str,
        device: str,
        watch: Watch = lambda names: names,
    ) -> None:
        self._source = model
        self._dtype = dtype
        self._device = torch.device(device)
        self.attention = ReferenceAttention(
            dict(enumerate(model.spec.attends)), layout, kv_dtype, self._device
        )
        self._paged = Paged(model.config, model.slot_of, self.attention)
        self._model = self._load(checkpoint, watch)

    def update(self, checkpoint: Checkpoint) -> None:
        """Other weights in the place of these, which are given up first; KV memory stays."""
        del self._model
        self._model = self._load(checkpoint)

    def pages(self, pool: int) -> np.ndarray:
        """Raises TypeError where they are on a GPU."""
        return self.attention.pools[pool].numpy()

    def copy(self, pool: int, sources: list[int], targets: list[int]) -> None:
        pages = self.attention.pools[pool]
        pages[targets] = pages[sources]

    @torch.inference_mode()
    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute one step; logits [S, vocab] float32 of the rows that sample."""
        self._paged.begin(batch.attention)
        return self._model(
            self._tensor(batch.token_ids),
            self._tensor(batch.positions),
            self._tensor(batch.chosen),
        )

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

    def _load(self, checkpoint: Checkpoint, watch: Watch = lambda names: names) -> PackedModel:
        loaded = self._source.load(checkpoint, self._dtype, str(self._device), watch)
        return PackedModel(loaded, self._paged, self._source.asks_past)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
