"""What computes a model, and in which numbers, decided from settings, files and the machine."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.errors import ConfigError, ModelError
from octavo.base.log import logger
from octavo.base.settings import EngineSettings
from octavo.engine.backends import Backend, FallbackBackend, NativeBackend, TorchBackend
from octavo.engine.hardware import fast_dtypes, num_cores, pick_device, require_transformers
from octavo.engine.resolve import compute_dtype, implementation, kv_dtype, quantization
from octavo.files.model_files import ModelFiles
from octavo.models.facts import ModelFacts
from octavo.models.families import default_dtype, model_config, model_spec
from octavo.models.spec import ModelSpec
from octavo.weights.dummy import DummyCheckpoint
from octavo.weights.open import open_checkpoint, open_safetensors

log = logger("engine")


@dataclass(frozen=True)
class Resolved:
    """Only headers have been read."""

    spec: ModelFacts
    device: str
    dtype: str
    kv_dtype: str
    backend: Backend


def resolve(settings: EngineSettings, files: ModelFiles) -> Resolved:
    """Raises ConfigError where a setting is impossible or nothing here can compute the model."""
    device = pick_device(settings.model.device)
    computed_by = implementation(settings.model.model_impl, device)
    if computed_by == "transformers":
        return _by_transformers(settings, files, device)
    dtype, kept_in = _numbers(settings, files, device, computed_by)
    try:
        spec = model_spec(files, kept_in, settings.model.max_model_len)
    except ModelError as error:
        if settings.model.model_impl != "auto" or files.is_gguf:
            raise
        return _instead(settings, files, device, error)
    backend = _backend(settings, files, spec, computed_by, dtype, device)
    return Resolved(spec, device, dtype, kept_in, backend)


def num_threads(settings: EngineSettings) -> int:
    """CPU threads that compute."""
    return settings.model.threads or num_cores()


def _numbers(
    settings: EngineSettings, files: ModelFiles, device: str, computed_by: str
) -> tuple[str, str]:
    """Dtypes of computing, and of the KV cache."""
    fast = fast_dtypes(device, computed_by)
    dtype = compute_dtype(settings.model, default_dtype(files), fast)
    return dtype, kv_dtype(settings.cache, dtype)


def _backend(
    settings: EngineSettings,
    files: ModelFiles,
    spec: ModelSpec,
    computed_by: str,
    dtype: str,
    device: str,
) -> Backend:
    checkpoint = open_checkpoint(files, settings.model.load_format, spec, settings.seed)
    threads = num_threads(settings)
    wanted = quantization(settings.model, computed_by)
    if computed_by == "native":
        return NativeBackend(spec, checkpoint, dtype, wanted, threads)
    return TorchBackend(spec, checkpoint, dtype, device, threads)


def _instead(
    settings: EngineSettings, files: ModelFiles, device: str, reason: ModelError
) -> Resolved:
    """Of a model that no family file describes."""
    try:
        found = _by_transformers(settings, files, device)
    except ConfigError as error:
        raise ModelError(f"{reason}; {error}") from error
    log.info("%s; computed by Transformers", reason)
    return found


def _by_transformers(settings: EngineSettings, files: ModelFiles, device: str) -> Resolved:
    require_transformers("any other model")
    from octavo.fallback.model import examine

    if files.is_gguf:
        raise ModelError("model_impl transformers reads folders, not GGUF files")
    quantization(settings.model, "transformers")
    dtype, kept_in = _numbers(settings, files, device, "transformers")
    stored = None if settings.model.load_format == "dummy" else open_safetensors(files)
    eos, trusted = model_config(files).get("eos_token_id"), settings.model.trust_remote_code
    model = examine(files, stored, dtype, kept_in, trusted, eos)
    checkpoint = model.checkpoint or DummyCheckpoint(model.spec, settings.seed)
    backend = FallbackBackend(model, checkpoint, dtype, device, num_threads(settings))
    return Resolved(model.spec, device, dtype, kept_in, backend)
