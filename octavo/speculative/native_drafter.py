"""A drafting model in native kernels, on the target's threads and in its KV memory."""

from __future__ import annotations

from octavo.models.spec import ModelSpec
from octavo.native.emitter import Emitter
from octavo.native.interface import Program
from octavo.native.program import emit
from octavo.speculative.draft_batch import DraftBatch


class NativeDrafter:
    """`made` writes into the model's own program."""

    def __init__(self, made: Emitter, spec: ModelSpec, vocab_size: int) -> None:
        """`vocab_size`: of the target; what is beyond is never guessed."""
        self._program = made.program
        self._logits = emit(made, spec).logits
        self._vocab_size = vocab_size

    def likeliest(self, batch: DraftBatch) -> list[int]:
        take(self._program, batch)
        self._program.start(0)
        self._program.wait()
        logits = self._program.rows(self._logits)[:, : self._vocab_size]
        found: list[int] = logits.argmax(-1).tolist()
        return found


def take(program: Program, batch: DraftBatch) -> None:
    rows = batch.attention
    program.take(
        token_ids=batch.token_ids,
        positions=batch.positions[None],
        row_starts=rows.row_starts,
        context_lens=rows.context_lens,
        tables=rows.tables,
        chosen=batch.chosen,
    )
