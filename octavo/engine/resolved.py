"""What computes a model, and in which numbers, decided from settings, files and the machine."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.errors import ConfigError, ModelError
from octavo.base.log import logger
from octavo.base.settings import EngineSettings
from octavo.engine.backends import Backend, FallbackBackend, NativeBackend, TorchBackend
from octavo.engine.hardware import fast_dtypes, num_cores, pick_device, require_transformers
from octavo.engine.resolve import compute_dtype, kv_dtype, quantization, ways
from octavo.files.model_files import ModelFiles
from octavo.models.facts import ModelFacts
from octavo.models.families import default_dtype, model_config, model_spec, outer_type
from octavo.native.needs import check_sizes
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
    """With `model_impl` "auto", the first way that can compute the model; the log says why an
    earlier one cannot.

    Raises:
        ConfigError: a setting is impossible or nothing here can compute the model.
    """
    device = pick_device(settings.model.device)
    refused: list[str] = []
    for way in ways(settings.model.model_impl, device):
        try:
            found = _WAYS[way](settings, files, device, way)
        except ConfigError as error:
            if not refused and not isinstance(error, ModelError):
                raise  # no fault of the model
            refused.append(str(error))
        else:
            if refused:
                log.info("%s; computed by %s", _joined(refused), found.backend.name)
            if (whole := outer_type(files)) is not None:
                log.info("only the text part of %s is served: %s", whole, found.spec.family)
            return found
    raise ModelError(_joined(refused))


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


def _by_octavo(settings: EngineSettings, files: ModelFiles, device: str, way: str) -> Resolved:
    dtype, kept_in = _numbers(settings, files, device, way)
    wanted = quantization(settings.model, way)
    spec = model_spec(files, kept_in, settings.model.max_model_len)
    checkpoint = open_checkpoint(files, settings.model.load_format, spec, settings.seed)
    threads = num_threads(settings)
    backend: Backend
    if way == "native":
        check_sizes(spec, settings.cache.block_size)
        backend = NativeBackend(spec, checkpoint, dtype, wanted, threads)
    else:
        backend = TorchBackend(spec, checkpoint, dtype, device, threads)
    return Resolved(spec, device, dtype, kept_in, backend)


def _by_transformers(
    settings: EngineSettings, files: ModelFiles, device: str, way: str
) -> Resolved:
    if files.is_gguf:
        raise ModelError("Transformers reads folders, not GGUF files")
    require_transformers("any other model")
    from octavo.fallback.model import examine

    quantization(settings.model, way)
    dtype, kept_in = _numbers(settings, files, device, way)
    stored = None if settings.model.load_format == "dummy" else open_safetensors(files)
    eos, trusted = model_config(files).get("eos_token_id"), settings.model.trust_remote_code
    model = examine(files, stored, dtype, kept_in, trusted, eos)
    checkpoint = model.checkpoint or DummyCheckpoint(model.spec, settings.seed)
    backend = FallbackBackend(model, checkpoint, dtype, device, num_threads(settings))
    return Resolved(model.spec, device, dtype, kept_in, backend)


def _joined(reasons: list[str]) -> str:
    """Each once, though one way may give another's reason as the end of its own."""
    said: list[str] = []
    for reason in reasons:
        if not any(reason.endswith(other) for other in said):
            said.append(reason)
    return "; ".join(said)


_WAYS = {"native": _by_octavo, "torch": _by_octavo, "transformers": _by_transformers}
