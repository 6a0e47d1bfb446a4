"""What "auto" and silence mean, decided once, from the settings, the model and the machine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from octavo.base.errors import CapacityError, ConfigError
from octavo.base.kv import KVGroup
from octavo.base.settings import (
    STATE_INTERVAL,
    CacheSettings,
    EngineSettings,
    ModelSettings,
    SpeculationSettings,
)
from octavo.base.units import parse_bytes, show_bytes
from octavo.models.facts import ModelFacts
from octavo.models.memory import blocks_for, kv_bytes_for

KV_SHARE = {"cpu": 0.5, "cuda": 0.85}  # of what the weights leave free, unless told


@dataclass(frozen=True)
class Memory:
    """Bytes free before the model is loaded, and bytes the weights will take; an option that
    would make them fewer, and how many it would leave."""

    free: int
    weights: int
    smaller: tuple[str, int] | None = None

    @property
    def left(self) -> int:
        return max(0, self.free - self.weights)


def ways(wanted: str, device: str) -> tuple[str, ...]:
    """ "native", "torch" and "transformers": what may compute, in the order to try.

    Raises:
        ConfigError: native kernels are wanted on a GPU.
    """
    if wanted == "native" and device != "cpu":
        raise ConfigError(f"model_impl native is for the CPU, the device is {device}")
    if wanted != "auto":
        return (wanted,)
    return ("native", "torch", "transformers") if device == "cpu" else ("torch", "transformers")


def compute_dtype(model: ModelSettings, checkpoint: str, fast: Collection[str]) -> str:
    """What `dtype` and `quantization` say; else the checkpoint's dtype where the device computes
    it natively (`fast`), else the next one that it does, without losing range.

    Raises:
        ConfigError: they contradict each other.
    """
    if model.quantization == "bf16":
        if model.dtype not in ("auto", "bfloat16"):
            raise ConfigError(f"quantization bf16 contradicts dtype {model.dtype}")
        return "bfloat16"
    if model.dtype != "auto":
        return model.dtype
    return next(dtype for dtype in (checkpoint, "bfloat16", "float32") if dtype in fast)


def kv_dtype(cache: CacheSettings, computed: str) -> str:
    """What the KV cache is kept in, by a model that computes in `computed`."""
    return computed if cache.kv_dtype == "auto" else cache.kv_dtype


def state_interval(cache: CacheSettings) -> int | None:
    """Tokens after which a recurrent state is kept to be found again: the ends of blocks, unless
    told. None where nothing is looked for."""
    if not cache.prefix_caching:
        return None
    if cache.state_interval is not None:
        return cache.state_interval
    return blocks_for(STATE_INTERVAL, cache.block_size) * cache.block_size


def num_drafts(speculation: SpeculationSettings) -> int:
    """That a row may have, at most: of a model fewer, as each takes a step of its own."""
    if speculation.speculation == "off":
        return 0
    return speculation.num_drafts or (4 if speculation.draft_model else 8)


def generated(settings: EngineSettings) -> int:
    """Tokens that a sequence may be planned to generate at once: a row's, drafts included, and as
    many of the row before where that is under way."""
    return (1 + num_drafts(settings.speculation)) * (1 + settings.scheduler.async_scheduling)


def chunk(settings: EngineSettings) -> int:
    """Tokens of a sequence that are computed before what slid out of a window is freed, at most."""
    return max(settings.scheduler.max_num_batched_tokens, generated(settings))


def check_states(settings: EngineSettings, groups: tuple[KVGroup, ...]) -> None:
    """Raises ConfigError where a recurrent state would have to go back, or to be read before it is
    there."""
    if not any(group.is_state for group in groups):
        return
    for name, wanted in (
        (f"speculation {settings.speculation.speculation}", num_drafts(settings.speculation) > 0),
        ("async_scheduling", settings.scheduler.async_scheduling),
    ):
        if wanted:
            raise ConfigError(f"{name} is not for models with recurrent states, as this one")


def quantization(model: ModelSettings, implementation: str) -> str:
    """ "auto" (as stored), "none", or a block format. A dtype that is asked for by name is what
    weights are computed in.

    Raises:
        ConfigError: only native kernels compute in block formats.
    """
    wanted = "none" if model.quantization == "bf16" else model.quantization
    if implementation == "native":
        return "none" if wanted == "auto" and model.dtype != "auto" else wanted
    if wanted not in ("auto", "none"):
        raise ConfigError(f"quantization {wanted} needs the native kernels of the CPU")
    return "none"


def max_model_len(wanted: int | None, spec: ModelFacts) -> int:
    """Raises ConfigError where the model was not made for that many positions."""
    if wanted is None:
        return spec.max_model_len
    if not 2 <= wanted <= spec.max_model_len:
        raise ConfigError(
            f"max_model_len must be between 2 and {spec.max_model_len}, the model's own; "
            f"got {wanted}"
        )
    return wanted


def kv_budget(
    settings: EngineSettings, spec: ModelFacts, memory: Memory, device: str, longest: int
) -> int:
    """Bytes for the KV cache: as stated; or a share of what is free, but no more than all
    sequences that may run at once could ever fill.

    Raises:
        CapacityError: the weights do not fit, or more was asked for than is free.
    """
    if memory.weights > memory.free:
        raise CapacityError(
            f"the weights take {show_bytes(memory.weights)} and {show_bytes(memory.free)} are "
            f"free; use {_advice(memory)}"
        )
    if settings.cache.kv_memory is None:
        return min(int(memory.left * KV_SHARE[device]), _most(settings, spec, longest))
    return _stated(settings.cache, memory)


def _advice(memory: Memory) -> str:
    if memory.smaller is None or memory.smaller[1] > memory.free:
        return "a smaller model"
    return f"{memory.smaller[0]}, which takes {show_bytes(memory.smaller[1])}"


def _stated(cache: CacheSettings, memory: Memory) -> int:
    assert cache.kv_memory is not None
    budget = parse_bytes(cache.kv_memory, memory.left)
    if budget > memory.left:
        raise CapacityError(
            f"--kv-memory {cache.kv_memory} is more than the {show_bytes(memory.left)} that are "
            f"free beside the weights; use --kv-memory {memory.left // 2**20}MiB or less"
        )
    return budget


def _most(settings: EngineSettings, spec: ModelFacts, longest: int) -> int:
    scheduler = settings.scheduler
    return kv_bytes_for(
        spec.kv_groups,
        settings.cache.block_size,
        longest,
        sequences=scheduler.max_num_seqs,
        chunk=min(chunk(settings), longest),
        state_interval=state_interval(settings.cache),
    )
