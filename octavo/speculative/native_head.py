"""An EAGLE-3 head in native kernels, on the target's threads and in its KV memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from octavo.models.eagle import EagleSpec
from octavo.native.eagle import emit_head
from octavo.native.emitter import Emitter
from octavo.native.interface import Packed
from octavo.speculative.draft_batch import DraftBatch
from octavo.speculative.native_drafter import take


class NativeHead:
    """`made` writes into the head's own program; `ids` are of the tokens that it drafts, `told`
    tells the target's features."""

    def __init__(
        self,
        made: Emitter,
        spec: EagleSpec,
        embedding: Packed,
        ids: np.ndarray,
        told: Callable[[], np.ndarray],
    ) -> None:
        self.told = told
        self._program, self._ids = made.program, ids
        self._buffers = emit_head(made, spec, embedding)

    def first(self, batch: DraftBatch, features: np.ndarray) -> tuple[list[int], np.ndarray]:
        take(self._program, batch)
        self._program.rows(self._buffers.features)[:] = features
        self._program.start(0)
        return self._drafted()

    def next(self, batch: DraftBatch, mind: np.ndarray) -> tuple[list[int], np.ndarray]:
        take(self._program, batch)
        self._program.rows(self._buffers.mind)[:] = mind
        return self._drafted()

    def _drafted(self) -> tuple[list[int], np.ndarray]:
        self._program.start(1)
        self._program.wait()
        logits = self._program.rows(self._buffers.logits)[:, : len(self._ids)]
        found: list[int] = self._ids[logits.argmax(-1)].tolist()
        return found, np.array(self._program.rows(self._buffers.after))
