"""Where the rows of one step lie in the KV cache, for every backend. numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """R rows of T tokens in all; one table per KV group."""

    row_starts: np.ndarray  # [R + 1] int32: tokens of row r are row_starts[r]:row_starts[r + 1]
    context_lens: np.ndarray  # [R] int32: tokens that row r's last token sees, itself included
    # By group, [R, most blocks] int32, padded with block 0; of states [R, 2]: read, written.
    tables: list[np.ndarray]
    block_size: int

    def slots(self, group: int) -> np.ndarray:
        """[T] int64: where each token's K and V go, block id * block_size + offset."""
        lengths = np.diff(self.row_starts)
        row_of = np.repeat(np.arange(len(lengths)), lengths)
        positions = np.arange(len(row_of)) + (self.context_lens - self.row_starts[1:])[row_of]
        blocks = self.tables[group][row_of, positions // self.block_size]
        return np.asarray(blocks.astype(np.int64) * self.block_size + positions % self.block_size)
