"""Runs batches through the native library. Knows arrays and buffers; nothing of plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from octavo.base.kv import KVLayout
from octavo.base.output import OpCost
from octavo.models.beside import NOTHING, Beside
from octavo.models.spec import ModelSpec
from octavo.native.emitter import Emitter
from octavo.native.interface import Native
from octavo.native.kv import allocate
from octavo.native.program import emit
from octavo.native.sampling import sample
from octavo.native.traced import TracedProgram
from octavo.native.weights import Weights
from octavo.sampling.processors import NO_PROCESSORS, Processors
from octavo.sampling.rows import Drawn, SamplingRow
from octavo.weights.checkpoint import Checkpoint
from octavo.worker.batch import Batch
from octavo.worker.observer import Observer


class NativeRunner:
    """A model with its weights and its KV cache in this machine's memory, where another one may
    live `beside` it. With an observer, its ops run one by one."""

    def __init__(
        self,
        native: Native,
        spec: ModelSpec,
        layout: KVLayout,
        checkpoint: Checkpoint,
        formats: Mapping[str, str],
        kv_dtype: str,
        threads: int,
        cache: Path | None,
        watch: Callable[[Iterable[str]], Iterable[str]] = lambda names: names,
        hidden_of: Collection[int] = (),
        observer: Observer | None = None,
        beside: Beside = NOTHING,
    ) -> None:
        self._native = native
        self._pool = native.Pool(threads)
        kept = {n: op.kept for n, op in spec.states.items()}
        self._memory = allocate(native, layout, kv_dtype, {**spec.attends, **beside.attends}, kept)
        self._pages = [
            part.data.reshape(pool.num_blocks, pool.page_bytes)
            for part, pool in zip(self._memory.pools, layout.pools, strict=True)
        ]
        self._spec = spec
        self._read = partial(Weights, native, spec, formats=formats, threads=threads)
        self._emitter = partial(Emitter, kv_dtype=kv_dtype, block_size=layout.block_size)
        self._hidden_of, self._features = hidden_of, beside.features
        self._observer = observer
        self._load(self._read(checkpoint, cache=cache, watch=watch))

    def update(self, checkpoint: Checkpoint) -> None:
        """Other weights in the place of these, which are freed first; KV memory stays."""
        self.program.wait()
        del self.program, self.embedding
        self._load(self._read(checkpoint))

    def _load(self, weights: Weights) -> None:
        self.weight_bytes = weights.num_bytes
        self.embedding = weights.matrix(self._spec.embedding)
        self.program = self._native.Program(self._pool)
        traced = TracedProgram(self.program) if self._observer is not None else None
        emitter = self._emitter(
            traced or self.program, self._spec.hidden_size, weights, self._memory
        )
        self._buffers = emit(emitter, self._spec, self._hidden_of, self._features)
        self._ops = traced.ops if traced is not None else []

    def emitter_beside(self, layers: int, weights: Weights, hidden_size: int) -> Emitter:
        """Of another model, behind the first `layers`: into a program of its own, for the same
        threads and the same KV memory."""
        program = self._native.Program(self._pool)
        return self._emitter(program, hidden_size, weights, self._memory.behind(layers))

    def pages(self, pool: int) -> np.ndarray:
        self.program.wait()  # a step that was given up may still write
        return self._pages[pool]

    def copy(self, pool: int, sources: list[int], targets: list[int]) -> None:
        pages = self.pages(pool)
        pages[targets] = pages[sources]

    def forward(self, batch: Batch) -> np.ndarray:
        """Start one step and return; gives the logits [S, vocab] float32 that it will leave.

        They hold until the next step, and are there once `sample` has waited for them.
        """
        self.program.take(
            token_ids=batch.token_ids,
            positions=batch.positions[None],
            row_starts=batch.attention.row_starts,
            context_lens=batch.attention.context_lens,
            tables=batch.attention.tables,
            chosen=batch.chosen,
        )
        if self._observer is None:
            self.program.start(0)
        else:
            self._run_observed(batch, self._observer)
        return self.program.rows(self._buffers.logits)

    def _run_observed(self, batch: Batch, observer: Observer) -> None:
        for op in self._ops:
            self.program.start(op.segment)
            self.program.wait()
            observer.wrote(batch, op, self.program.rows(op.buffer))

    def sample(
        self,
        logits: np.ndarray,
        rows: list[SamplingRow],
        processors: Processors = NO_PROCESSORS,
    ) -> list[Drawn]:
        self.program.wait()
        return sample(self._pool, logits, rows, processors)

    def costs(self) -> list[OpCost]:
        self.program.wait()
        return [OpCost(*cost) for cost in self.program.costs()]

    def hidden(self, layer: int) -> np.ndarray:
        """Output of a layer that `hidden_of` named, at the chosen tokens: [S, hidden] float32."""
        return self.program.rows(self._buffers.hidden[layer])

    def features(self) -> np.ndarray:
        """What the step before has told: [T, hidden of each layer side by side] float32, a view
        that holds until the next step."""
        assert self._buffers.features is not None
        self.program.wait()
        return self.program.rows(self._buffers.features)
