"""A head that drafts, opened for the model that it was made for; only headers are read."""

from __future__ import annotations

import numpy as np

from octavo.base.errors import ModelError
from octavo.base.settings import EngineSettings
from octavo.engine.backends import Backend, NativeBackend, TorchBackend
from octavo.engine.resolve import quantization
from octavo.engine.resolved import Resolved, num_threads
from octavo.files.model_files import ModelFiles
from octavo.models.eagle import SHIFTS, EagleSpec, eagle_spec
from octavo.models.spec import ModelSpec
from octavo.native.needs import check_sizes
from octavo.weights.dummy import DummyCheckpoint
from octavo.weights.match import check
from octavo.weights.safetensors_files import SafetensorsCheckpoint


def open_head(
    settings: EngineSettings, plan: Resolved, target: ModelSpec, files: ModelFiles
) -> tuple[EagleSpec, Backend, np.ndarray]:
    """Its spec, what computes it as the model of `plan` is computed, and the ids of the tokens that
    it drafts, int64.

    Raises:
        ModelError: it is not understood, or is for another model.
    """
    config = None if files.is_gguf else files.json("config.json")
    if config is None:
        raise ModelError("a head is a folder with config.json and model.safetensors")
    dummy = settings.model.load_format == "dummy"
    stored = None if dummy else SafetensorsCheckpoint.open(files)
    spec = eagle_spec(config, stored.shapes() if stored else (), plan.kv_dtype, target)
    ids = _ids(spec, stored, target)
    if stored is not None:
        check(spec, stored)
    return spec, _backend(settings, plan, spec, stored), ids


def _backend(
    settings: EngineSettings, plan: Resolved, spec: EagleSpec, stored: SafetensorsCheckpoint | None
) -> Backend:
    checkpoint = stored or DummyCheckpoint(spec, settings.seed)
    threads = num_threads(settings)
    if not isinstance(plan.backend, NativeBackend):
        return TorchBackend(spec, checkpoint, plan.dtype, plan.device, threads)
    check_sizes(spec, settings.cache.block_size)
    wanted = quantization(settings.model, "native")
    return NativeBackend(spec, checkpoint, plan.dtype, wanted, threads)


def _ids(spec: EagleSpec, stored: SafetensorsCheckpoint | None, target: ModelSpec) -> np.ndarray:
    ids = np.arange(spec.vocab_size)
    if stored is not None and SHIFTS in stored.shapes():
        shifts = stored.int64(SHIFTS)
        if shifts.shape != ids.shape:
            raise ModelError(f"{SHIFTS} has not {len(ids)} entries, one for each drafted token")
        ids = ids + shifts
    if not 0 <= ids.min() <= ids.max() < target.vocab_size:
        raise ModelError(f"it drafts tokens that are none of the model's {target.vocab_size}")
    return ids
