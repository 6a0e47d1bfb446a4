"""Who watches a model compute, op by op."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from octavo.base.plan import StepPlan
from octavo.native.traced import TracedOp
from octavo.worker.batch import Batch


class Observer(Protocol):
    """Told of every step: its plan, then what each op wrote."""

    def begin(self, plan: StepPlan) -> None: ...

    def wrote(self, batch: Batch, op: TracedOp, rows: np.ndarray) -> None:
        """float32 [T, width], or [S, width] where an op works for chosen tokens only; a view that
        holds during the call."""
