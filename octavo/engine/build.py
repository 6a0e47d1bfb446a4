"""From settings to an engine that is ready: files, spec, memory plan, weights, rooms joined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import cast

import msgspec

from octavo.base.kv import KVLayout
from octavo.base.progress import progress
from octavo.base.sampling_params import LogprobsMode
from octavo.base.settings import EngineSettings
from octavo.core.kv_manager import KVManager
from octavo.core.prefix import root_digest
from octavo.core.scheduler import Scheduler
from octavo.core.swap import SwapDirectory
from octavo.engine.engine import Engine
from octavo.engine.executor import InProcessExecutor, ObservedExecutor
from octavo.engine.grammars import find_grammars
from octavo.engine.hardware import free_memory
from octavo.engine.info import EngineInfo
from octavo.engine.proposers import Drafting, drafting
from octavo.engine.resolve import (
    Memory,
    check_states,
    chunk,
    generated,
    kv_budget,
    max_model_len,
    num_drafts,
    state_interval,
)
from octavo.engine.resolved import Resolved, num_threads, resolve
from octavo.engine.swapping import swap_bytes, swap_store
from octavo.engine.updates import CurrentWeights
from octavo.files.model_files import ModelFiles
from octavo.models.families import generation_defaults
from octavo.models.memory import check_fit, kv_layout
from octavo.models.memory_table import memory_table
from octavo.sampling.processors import Processors, load_processors
from octavo.worker.observer import Observer
from octavo.worker.worker import Worker


def watch(tensors: Iterable[str]) -> Iterable[str]:
    """Progress of loading weights."""
    names = list(tensors)
    with progress(len(names), "weights", " tensors", leave=False) as bar:
        for name in names:
            yield name
            bar.update()


def build_engine(
    settings: EngineSettings, files: ModelFiles, observer: Observer | None = None
) -> Engine:
    """An engine in this process. Nothing large is read before it is known to fit.

    Raises:
        ConfigError: a setting is impossible, or the model is not understood or does not fit, or
            what computes it cannot be observed.
    """
    processors = load_processors(settings.model.logits_processors)
    plan = resolve(settings, files)
    if observer is not None:
        plan.backend.observe(observer)
    draft = drafting(settings, plan, watch)
    info = plan_engine(settings, plan, draft, files)
    return _join(settings, files, plan, draft, info, processors, observer)


def plan_engine(
    settings: EngineSettings, plan: Resolved, draft: Drafting, files: ModelFiles
) -> EngineInfo:
    """What an engine will be, but for the epoch of its weights, with all its memory.

    Raises:
        ConfigError: a setting is impossible.
        CapacityError: it does not fit.
    """
    plan = replace(plan, spec=draft.spec)
    spec, backend = plan.spec, plan.backend
    check_states(settings, spec.kv_groups)
    longest = max_model_len(settings.model.max_model_len, spec)
    swapped = swap_bytes(settings.cache, plan.device, spec.kv_groups)
    layout = _plan_memory(settings, plan, draft, longest, swapped)
    table = memory_table(
        spec,
        layout,
        weight_bytes=backend.weight_bytes(),
        weight_format=backend.weight_format,
        kv_dtype=plan.kv_dtype,
        max_model_len=longest,
        runner=backend.name,
        draft=(draft.weight_bytes, draft.described),
    )
    return EngineInfo(
        model=files.name,
        family=spec.family,
        dtype=plan.dtype,
        kv_dtype=plan.kv_dtype,
        weight_format=backend.weight_format,
        runner=backend.name,
        vocab_size=spec.vocab_size,
        max_num_seqs=settings.scheduler.max_num_seqs,
        max_model_len=longest,
        eos_token_ids=spec.eos_token_ids,
        layout=layout,
        generation_defaults=generation_defaults(files),
        table=table,
        prefix_caching=settings.cache.prefix_caching,
        max_logprobs=settings.model.max_logprobs,
        logprobs_mode=cast(LogprobsMode, settings.model.logprobs_mode),
    )


def _join(
    settings: EngineSettings,
    files: ModelFiles,
    plan: Resolved,
    draft: Drafting,
    info: EngineInfo,
    processors: Processors,
    observer: Observer | None,
) -> Engine:
    """Load what is large, and put the rooms together."""
    cache, backend, layout = settings.cache, plan.backend, info.layout
    swapped = swap_bytes(
        cache, plan.device, draft.spec.kv_groups
    )  # perhaps a share of what is free
    weights = CurrentWeights.of(plan.spec, backend.checkpoint, num_threads(settings))
    make = partial(backend.load, layout, plan.kv_dtype, watch, beside=draft.beside)
    runner = make(weights.checkpoint)
    store = swap_store(cache)
    root = {
        "model": sha256(repr(draft.spec).encode()).hexdigest(),
        "kernels": backend.kernels(),
        "dtype": plan.dtype,
        "kv_dtype": plan.kv_dtype,
        "weights": backend.weight_format,
        "epoch": weights.epoch,
    }
    swap = SwapDirectory(swapped, store.names()) if store is not None else None
    manager = KVManager(
        layout,
        root,
        cache.prefix_caching,
        cache.prefix_index,
        swap,
        generated=generated(settings),
    )
    scheduler = Scheduler(settings.scheduler, manager, num_drafts(settings.speculation))
    grammars = find_grammars(settings, files, info)
    guide = grammars.guide if grammars is not None else None
    worker = Worker(make, runner, layout, store, processors, draft.make, guide)
    executor = ObservedExecutor(worker, observer) if observer else InProcessExecutor(worker)
    info = msgspec.structs.replace(
        info,
        epoch=weights.epoch,
        digest=root_digest(root).hex(),
        logits_processors=tuple(processors),
        structured_outputs=grammars is not None,
    )
    ahead = settings.scheduler.async_scheduling
    return Engine(info, scheduler, executor, weights, ahead, grammars)


def _plan_memory(
    settings: EngineSettings, plan: Resolved, draft: Drafting, longest: int, swapped: int
) -> KVLayout:
    spec, backend = plan.spec, plan.backend
    taken = swapped if settings.cache.kv_swap_dir is None else 0
    free = free_memory(plan.device) - taken - draft.weight_bytes
    memory = Memory(free, backend.weight_bytes(), backend.smaller())
    budget = kv_budget(settings, spec, memory, plan.device, longest)
    layout = kv_layout(
        spec.kv_groups,
        settings.cache.block_size,
        budget,
        chunk=chunk(settings),
        longest=longest,
        sequences=settings.scheduler.max_num_seqs,
        state_interval=state_interval(settings.cache),
    )
    check_fit(layout, budget, longest)
    return layout
