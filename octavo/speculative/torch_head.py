"""An EAGLE-3 head in torch, on the target's device and in its KV memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from octavo.attention.backend import AttentionBackend
from octavo.layers.eagle import EagleHead
from octavo.speculative.draft_batch import DraftBatch
from octavo.speculative.torch_drafter import draft_context, on


class TorchHead:
    """`layers`: of the target, whose pages `attention` keeps; the head's one is behind them. `ids`
    are of the tokens that it drafts, `told` tells the target's features."""

    def __init__(
        self,
        head: EagleHead,
        attention: AttentionBackend,
        layers: int,
        device: torch.device,
        ids: np.ndarray,
        told: Callable[[], np.ndarray],
    ) -> None:
        self.told = told
        self._head, self._device, self._ids = head, device, ids
        self._context = partial(draft_context, attention, layers, device)

    @torch.inference_mode()
    def first(self, batch: DraftBatch, features: np.ndarray) -> tuple[list[int], np.ndarray]:
        given = on(self._device, features).to(self._head.fc.weight.dtype)
        return self._drafted(batch, self._head.fc(given))

    @torch.inference_mode()
    def next(self, batch: DraftBatch, mind: np.ndarray) -> tuple[list[int], np.ndarray]:
        return self._drafted(batch, on(self._device, mind).to(self._head.fc.weight.dtype))

    def _drafted(self, batch: DraftBatch, mind: torch.Tensor) -> tuple[list[int], np.ndarray]:
        tokens, chosen = (on(self._device, a) for a in (batch.token_ids, batch.chosen))
        logits, after = self._head(tokens, mind, self._context(batch), chosen)
        found: list[int] = []
        if len(chosen):
            found = self._ids[logits[:, : len(self._ids)].argmax(-1).cpu().numpy()].tolist()
        return found, after.float().cpu().numpy()
