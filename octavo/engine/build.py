"""From settings to an engine that is ready: files, spec, memory plan, weights, rooms joined."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tqdm import tqdm

from octavo.base.kv import KVLayout
from octavo.base.settings import EngineSettings
from octavo.core.hash_chain import root_digest
from octavo.core.kv_manager import KVManager
from octavo.core.scheduler import Scheduler
from octavo.engine.engine import Engine
from octavo.engine.executor import InProcessExecutor
from octavo.engine.hardware import fast_dtypes, free_memory, num_cores, pick_device
from octavo.engine.info import EngineInfo
from octavo.engine.resolve import Memory, compute_dtype, kv_budget, max_model_len
from octavo.files.model_files import ModelFiles
from octavo.models.families import default_dtype, generation_defaults, model_spec
from octavo.models.memory import ITEMSIZE, check_fit, kv_layout, weight_bytes
from octavo.models.memory_table import memory_table
from octavo.models.spec import ModelSpec
from octavo.weights.open import open_checkpoint
from octavo.worker.worker import Worker


def build_engine(settings: EngineSettings, files: ModelFiles) -> Engine:
    """An engine in this process. Nothing large is read before it is known to fit.

    Raises:
        ConfigError: a setting is impossible, or the model is not understood or does not fit.
    """
    device = pick_device(settings.model.device)
    dtype = compute_dtype(settings.model.dtype, default_dtype(files), fast_dtypes(device))
    spec = model_spec(files, ITEMSIZE[dtype])
    longest = max_model_len(settings.model.max_model_len, spec)
    layout = _plan_memory(settings, spec, dtype, device, longest)
    info = EngineInfo(
        model=files.name,
        family=spec.family,
        dtype=dtype,
        vocab_size=spec.vocab_size,
        max_model_len=longest,
        eos_token_ids=spec.eos_token_ids,
        layout=layout,
        generation_defaults=generation_defaults(files),
        table=memory_table(spec, layout, dtype=dtype, kv_dtype=dtype, max_model_len=longest),
    )
    root = root_digest({"model": str(files.path), "dtype": dtype})
    manager = KVManager(layout, root, settings.cache.prefix_caching)
    worker = _load(settings, files, spec, layout, dtype, device)
    return Engine(info, Scheduler(settings.scheduler, manager), InProcessExecutor(worker))


def _plan_memory(
    settings: EngineSettings, spec: ModelSpec, dtype: str, device: str, longest: int
) -> KVLayout:
    itemsize = ITEMSIZE[dtype]
    memory = Memory(free_memory(device), weight_bytes(spec, itemsize), itemsize)
    budget = kv_budget(settings, spec, memory, device, longest)
    layout = kv_layout(spec.kv_groups, settings.cache.block_size, budget)
    check_fit(layout, budget, longest)
    return layout


def _load(
    settings: EngineSettings,
    files: ModelFiles,
    spec: ModelSpec,
    layout: KVLayout,
    dtype: str,
    device: str,
) -> Worker:
    from octavo.worker.torch_runner import TorchRunner, use_threads

    checkpoint = open_checkpoint(files, settings.model.load_format, spec, settings.seed)
    use_threads(settings.model.threads or num_cores())
    watch: partial[Iterable[str]] = partial(
        tqdm, desc="weights", unit=" tensors", leave=False, disable=None
    )
    return Worker(TorchRunner(spec, layout, checkpoint, dtype, device, watch), layout)
