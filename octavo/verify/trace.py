"""Which op first wrote other bits: digests of what every op wrote for the tokens of one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from octavo.base.plan import StepPlan
from octavo.native.traced import TracedOp
from octavo.worker.batch import Batch

DIGEST_BYTES = 8
Place = tuple[int, int]  # position in the stream, number of the op's segment


@dataclass
class Trace:
    """An observer. What is computed at a position depends on the tokens up to it alone, so every
    sequence that begins as the stream does is looked at, whoever asked for it.

    With `expected`, the digests of another trace, `first` is the first place, in order of position
    and then of ops, where some bit differed.
    """

    stream: Sequence[int]
    expected: Mapping[Place, bytes] = field(default_factory=dict)
    digests: dict[Place, bytes] = field(default_factory=dict)
    first: tuple[Place, TracedOp] | None = None
    _alike: dict[int, int] = field(default_factory=dict)  # sequence -> tokens as in the stream
    _plan: StepPlan | None = None
    _seen: dict[int, int] = field(default_factory=dict)  # token of the step -> position

    def begin(self, plan: StepPlan) -> None:
        self._plan = plan
        for sequence in plan.new:
            self._alike[sequence.sequence_id] = _common(sequence.token_ids, self.stream)

    def wrote(self, batch: Batch, op: TracedOp, rows: np.ndarray) -> None:
        if op.segment == 0:
            self._seen = self._follow(batch)
        tokens = batch.chosen.tolist() if op.chosen else range(len(rows))
        for row, token in enumerate(tokens):
            if token in self._seen:
                digest = blake2b(rows[row].tobytes(), digest_size=DIGEST_BYTES).digest()
                self._take((self._seen[token], op.segment), op, digest)

    def _follow(self, batch: Batch) -> dict[int, int]:
        """Tokens of this step that have only the stream's tokens before them, and are its own."""
        assert self._plan is not None
        seen: dict[int, int] = {}
        starts = batch.attention.row_starts.tolist()
        for row, first, last in zip(self._plan.rows, starts, starts[1:], strict=False):
            alike = self._alike[row.sequence_id]
            if row.start > alike:
                continue
            tokens = batch.token_ids[first:last].tolist()  # drafts behind the row's own
            count = _common(tokens, self.stream[row.start :])
            seen.update((first + n, row.start + n) for n in range(count))
            end = row.start + count
            self._alike[row.sequence_id] = max(alike, end) if count == len(tokens) else end
        return seen

    def _take(self, place: Place, op: TracedOp, digest: bytes) -> None:
        self.digests.setdefault(place, digest)
        differs = self.expected.get(place, digest) != digest
        if differs and (self.first is None or place < self.first[0]):
            self.first = place, op


def _common(tokens: Sequence[int], others: Sequence[int]) -> int:
    """Tokens at the beginning that are the same."""
    pairs = enumerate(zip(tokens, others, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(tokens), len(others)))
