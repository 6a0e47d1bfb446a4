"""A drafting model in torch, on the target's device and in its KV memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from octavo.attention.backend import AttentionBackend
from octavo.layers.context import StepContext
from octavo.layers.decoder import Decoder
from octavo.speculative.draft_batch import DraftBatch


class TorchDrafter:
    """`layers`: of the target, whose pages `attention` keeps; this model's are behind them."""

    def __init__(
        self,
        model: Decoder,
        attention: AttentionBackend,
        layers: int,
        device: torch.device,
        vocab_size: int,
    ) -> None:
        """`vocab_size`: of the target; what is beyond is never guessed."""
        self._model, self._vocab_size, self._device = model, vocab_size, device
        self._context = partial(draft_context, attention, layers, device)

    @torch.inference_mode()
    def likeliest(self, batch: DraftBatch) -> list[int]:
        tokens, chosen = (on(self._device, a) for a in (batch.token_ids, batch.chosen))
        logits = self._model(tokens, self._context(batch), chosen)[:, : self._vocab_size]
        found: list[int] = logits.argmax(-1).tolist() if len(logits) else []
        return found


def draft_context(
    attention: AttentionBackend, layers: int, device: torch.device, batch: DraftBatch
) -> StepContext:
    run = partial(attention.run, attention.plan(batch.attention))

    def attend(layer: int, *args: Any, **options: Any) -> torch.Tensor:
        return run(layers + layer, *args, **options)

    return StepContext(on(device, batch.positions), attend)


def on(device: torch.device, array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).to(device)
