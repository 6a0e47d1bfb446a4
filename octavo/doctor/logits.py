"""Is what the model computes what Transformers computes from the same files?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.base.errors import ConfigError
from octavo.base.settings import EngineSettings
from octavo.base.units import show_bytes
from octavo.bench.quality import Model, log_softmax
from octavo.doctor.finding import Finding, ok, warning, wrong
from octavo.engine.hardware import free_memory
from octavo.engine.resolved import resolve
from octavo.files.model_files import ModelFiles

WRONG_KL = 1e-3  # nats, mean over positions; in float32 only the order of additions differs
SERVED_KL = 0.1  # of a format that costs a lot
CPU = {"device": "cpu"}  # where logits are numpy arrays
FLOAT32 = CPU | {"dtype": "float32", "quantization": "none", "kv_dtype": "auto"}

Logits = list[NDArray[np.float32]]  # of each prompt, [T, vocab]
Prompts = Sequence[Sequence[int]]


def logits_findings(
    settings: EngineSettings, files: ModelFiles, prompts: Prompts
) -> Iterator[Finding]:
    """First in float32, where both must be the same but for rounding; then as it is served."""
    try:
        _check_fit(settings, files)
        truth = _truth(settings, files, prompts)
    except ConfigError as error:
        yield warning("logits", f"not compared: {error}", "answers do not depend on it")
        return
    exact = _with(settings, **FLOAT32)
    yield _compared("logits", ours(exact, files, prompts), truth, "float32")
    served = _with(settings, **CPU)
    numbers = resolve(served, files).backend.weight_format
    yield _compared("logits as served", ours(served, files, prompts), truth, numbers)


def ours(settings: EngineSettings, files: ModelFiles, prompts: Prompts) -> Logits:
    """Octavo's."""
    longest = max(map(len, prompts))
    model = Model(resolve(settings, files), settings.cache.block_size, longest)
    return [model.logits(np.array(p, np.int64), 0, len(p)).copy() for p in prompts]


def _truth(settings: EngineSettings, files: ModelFiles, prompts: Prompts) -> Logits:
    from octavo.fallback import truth  # PyTorch is imported only where it is needed

    return truth.logits(files, prompts, settings.model.trust_remote_code)


def _compared(name: str, mine: Logits, truth: Logits, numbers: str) -> Finding:
    size = min(mine[0].shape[1], truth[0].shape[1])  # rows of an embedding may be padded
    a, b = (np.concatenate([x[:, :size] for x in both]) for both in (mine, truth))
    p, q = log_softmax(b), log_softmax(a)
    kl = float(np.sum(np.exp(p) * (p - q), axis=-1).mean())
    agree = float((a.argmax(-1) == b.argmax(-1)).mean())
    largest = float(np.abs(a - b).max())
    text = (
        f"{numbers}, {len(a)} positions: largest difference {largest:.2g} (relative "
        f"{largest / float(np.abs(b).max()):.1g}), top-1 {100 * agree:.1f} %, KL {kl:.2g}"
    )
    if name == "logits" and not kl < WRONG_KL:  # NaN is wrong too
        return wrong(name, text, "please report this with the model's name")
    if not kl < SERVED_KL:
        return warning(name, text, "see `octavo bench quality`; another --quantization costs less")
    return ok(name, text)


def _check_fit(settings: EngineSettings, files: ModelFiles) -> None:
    """Raises ConfigError where float32 weights do not fit; one copy at a time is in memory."""
    needed = 4 * resolve(settings, files).spec.num_parameters
    if needed > (free := free_memory("cpu")):
        raise ConfigError(f"in float32 it takes {show_bytes(needed)}, {show_bytes(free)} are free")


def _with(settings: EngineSettings, **changes: str) -> EngineSettings:
    return EngineSettings.flat(model=settings.model.model, **(settings.options() | changes))
