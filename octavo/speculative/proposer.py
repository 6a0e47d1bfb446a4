"""Who guesses what comes next: the interface of all proposers. A guess never changes an answer, it
only lets the model draw several tokens in one step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec
import numpy as np


class DraftRow(msgspec.Struct, frozen=True, eq=False):
    """One row of the step that is about to be computed."""

    sequence_id: int
    token_ids: np.ndarray  # int32: all that are known up to the row's end; a view, not to be kept
    prompt_len: int
    start: int  # position of the first token that the row computes
    most: int  # drafts that may follow its last token; 0: none
    tables: list[np.ndarray]  # block ids by KV group, with room for the drafts


class Proposer(Protocol):
    """Called once a step, before the model computes, with all rows in the order of the plan."""

    def propose(self, rows: Sequence[DraftRow]) -> list[Sequence[int]]:
        """For each row at most `most` token ids, the likeliest continuation of `token_ids`."""

    def forget(self, sequence_ids: Collection[int]) -> None:
        """Sequences that have ended, or lost their blocks; some were never seen. Ids do not come
        again."""
