"""Steps for a runner without a scheduler: sequences extended by hand, in pages of any order."""

from __future__ import annotations

import random

import numpy as np
import torch

from octavo.attention.batch import AttentionBatch
from octavo.base.kv import KVLayout
from octavo.base.sampling_params import SamplingParams
from octavo.sampling.rows import SamplingRow
from octavo.worker.batch import Batch


class Steps:
    """Feeds `runner` rows of named sequences; every row's last token is chosen."""

    def __init__(self, runner, layout: KVLayout, shuffle: int = 0) -> None:
        self.runner = runner
        self._layout = layout
        pools = [list(range(1, pool.num_blocks)) for pool in layout.pools]
        for free in pools:
            random.Random(shuffle).shuffle(free)
        self._free = [pools[layout.pool_of(g)] for g in range(len(layout.groups))]
        self._tables: dict[str, list[list[int]]] = {}
        self._lengths: dict[str, int] = {}

    def run(self, rows: list[tuple[str, list[int]]]) -> np.ndarray:
        """Logits [rows, vocab] after each row's tokens, a copy."""
        batch = self._batch(rows)
        logits = self.runner.forward(batch)
        self.runner.sample(logits, batch.sampling)
        return torch.as_tensor(logits).numpy().copy()

    def _batch(self, rows: list[tuple[str, list[int]]]) -> Batch:
        starts = [self._lengths.get(name, 0) for name, _ in rows]
        lengths = [len(tokens) for _, tokens in rows]
        for (name, _), start, length in zip(rows, starts, lengths, strict=True):
            self._grow(name, start + length)
        row_starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        positions = [np.arange(s, s + n) for s, n in zip(starts, lengths, strict=True)]
        return Batch(
            token_ids=np.array([t for _, tokens in rows for t in tokens], np.int64),
            positions=np.concatenate(positions),
            attention=AttentionBatch(
                row_starts=row_starts,
                context_lens=np.add(starts, lengths).astype(np.int32),
                tables=[self._table(rows, g) for g in range(len(self._free))],
                block_size=self._layout.block_size,
            ),
            chosen=row_starts[1:].astype(np.int64) - 1,
            sampling=[_greedy(tokens) for _, tokens in rows],
            wanted=[],
        )

    def _grow(self, name: str, length: int) -> None:
        tables = self._tables.setdefault(name, [[] for _ in self._free])
        for table, free in zip(tables, self._free, strict=True):
            while len(table) * self._layout.block_size < length:
                table.append(free.pop())
        self._lengths[name] = length

    def _table(self, rows: list[tuple[str, list[int]]], group: int) -> np.ndarray:
        held = [self._tables[name][group] for name, _ in rows]
        table = np.zeros((len(rows), max(map(len, held))), np.int32)
        for line, blocks in zip(table, held, strict=True):
            line[: len(blocks)] = blocks
        return table


def _greedy(tokens: list[int]) -> SamplingRow:
    return SamplingRow(
        params=SamplingParams(temperature=0.0),
        child=0,
        position=len(tokens),
        prompt_len=len(tokens),
        token_ids=np.array(tokens, np.int32),
        stop_ids=(),
    )
