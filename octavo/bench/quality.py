"""`octavo bench quality`: what formats of weights and KV cost in answers, on real text.

Every next-token distribution is compared with the reference's: the stored weights dequantised, in
float32 throughout. Both are computed step by step as in serving.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import product

import numpy as np
from numpy.typing import NDArray

from octavo.attention.batch import AttentionBatch
from octavo.base.errors import CapacityError
from octavo.base.flags import take
from octavo.base.kv import KVLayout
from octavo.base.log import configure
from octavo.base.progress import progress
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import EngineSettings, ModelSettings
from octavo.base.units import show_bytes
from octavo.bench.report import check_json, machine, write_json
from octavo.engine.build import watch
from octavo.engine.hardware import free_memory
from octavo.engine.resolved import Resolved, resolve
from octavo.files.locate import locate
from octavo.files.model_files import ModelFiles
from octavo.models.kv_groups import kv_bytes_per_token
from octavo.models.memory import kv_bytes_for, kv_layout
from octavo.sampling.rows import SamplingRow
from octavo.text.tokenizer import load_tokenizer
from octavo.worker.batch import Batch

REFERENCE = "reference"
QUANTIZATIONS = ("auto", "bf16", "q8_0", "q5_1", "q4_1")
CHUNK = 128  # tokens of a step; bounds the logits in memory, changes no bit of them
GREEDY = SamplingParams(temperature=0.0)

Ids = NDArray[np.int64]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Quality:
    """How near one setting's distributions are to the reference's. KL in nats."""

    setting: str
    weight_format: str
    weight_bytes: int
    kv_tokens: int  # that a GiB of KV cache holds, while no window is full
    mean_kl: float
    p99_kl: float
    top1_agreement: float  # share of positions
    perplexity: float


class Model:
    """A model as it serves, with KV memory for one text."""

    def __init__(self, resolved: Resolved, block_size: int, longest: int) -> None:
        groups = resolved.spec.kv_groups
        budget = kv_bytes_for(groups, block_size, longest)
        layout = kv_layout(groups, block_size, budget)
        self._layout, self._state = layout, 0  # the state's block, of models that keep one
        self._runner = resolved.backend.load(
            layout, resolved.kv_dtype, watch, resolved.backend.checkpoint
        )

    def log_probs(self, ids: Ids, start: int, stop: int) -> Doubles:
        """[stop - start, vocab]; the log-softmax of `logits`."""
        return log_softmax(self.logits(ids, start, stop))

    def logits(self, ids: Ids, start: int, stop: int) -> NDArray[np.float32]:
        """[stop - start, vocab]: of the token after each of ids[start:stop]. Those before `start`
        were computed by the calls before. They hold until the next call."""
        source, self._state = self._state if start else 0, 2 if self._state == 1 else 1
        tables = block_tables(self._layout, (source, self._state))
        batch = text_batch(ids, start, stop, tables, self._layout.block_size)
        logits = self._runner.forward(batch)
        self._runner.sample(logits, batch.sampling)
        return np.asarray(logits)


class Tally:
    """One model's figures, position by position."""

    def __init__(self) -> None:
        self._kl: list[Doubles] = []
        self._agrees: list[NDArray[np.bool_]] = []
        self._losses: list[Doubles] = []

    def add(self, ours: Doubles, reference: Doubles, following: Ids) -> None:
        """Log-probabilities [T, vocab], and the tokens that come next: T, or one fewer where the
        text ends."""
        self._kl.append(np.sum(np.exp(reference) * (reference - ours), axis=-1))
        self._agrees.append(ours.argmax(axis=-1) == reference.argmax(axis=-1))
        self._losses.append(-ours[np.arange(len(following)), following])

    def quality(self, setting: str, resolved: Resolved) -> Quality:
        kl = np.concatenate(self._kl)
        return Quality(
            setting=setting,
            weight_format=resolved.backend.weight_format,
            weight_bytes=resolved.backend.weight_bytes(),
            kv_tokens=2**30 // kv_bytes_per_token(resolved.spec.kv_groups),
            mean_kl=float(kl.mean()),
            p99_kl=float(np.percentile(kl, 99)),
            top1_agreement=float(np.concatenate(self._agrees).mean()),
            perplexity=float(np.exp(np.concatenate(self._losses).mean())),
        )


def run(options: argparse.Namespace) -> None:
    """Compare, print, and write a file if asked. Raises ConfigError for impossible options."""
    configure()
    check_json(options.json)
    settings = EngineSettings.flat(device="cpu", **take(options, ModelSettings))
    files = locate(settings.model.model, code=settings.model.trust_remote_code)
    tokenizer = load_tokenizer(files, settings.model.tokenizer)
    texts = [np.array(tokenizer.encode(text), np.int64) for text in passages().values()]
    quantizations = options.quantizations or QUANTIZATIONS
    found = measure(settings, files, quantizations, texts, options.kv_dtypes or ["auto"])
    print(table(found))
    report = {
        "model": settings.model.model,
        "machine": machine(),
        "passages": len(texts),
        "tokens": sum(map(len, texts)),
        "settings": [asdict(quality) for quality in found],
    }
    write_json(options.json, report)


def passages() -> dict[str, str]:
    """The texts that Octavo ships, by their names."""
    file = resources.files("octavo.bench") / "passages.txt"
    _, *parts = re.split(r"^=== (.+) ===\n", file.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def measure(
    settings: EngineSettings,
    files: ModelFiles,
    quantizations: Sequence[str],
    texts: Sequence[Ids],
    kv_dtypes: Sequence[str] = ("auto",),
) -> list[Quality]:
    """The reference, and `settings` with each of `quantizations` and each of `kv_dtypes`, on
    token ids. A text longer than the model's context is cut.

    Raises:
        ConfigError: a setting is impossible, or all models together do not fit into memory.
    """
    wanted = {REFERENCE: _with(settings, quantization="none", dtype="float32")}
    for name, kv_dtype in product(quantizations, kv_dtypes):
        setting = name if kv_dtype == "auto" else f"{name}, KV {kv_dtype}"
        wanted[setting] = _with(settings, quantization=name, kv_dtype=kv_dtype)
    resolved = {name: resolve(setting, files) for name, setting in wanted.items()}
    _check_fit(resolved)
    most = resolved[REFERENCE].spec.max_model_len
    texts = [ids[:most] for ids in texts]
    longest = max(map(len, texts))
    models = {
        name: Model(found, settings.cache.block_size, longest) for name, found in resolved.items()
    }
    tallies = compare(models, texts)
    return [tallies[name].quality(name, found) for name, found in resolved.items()]


def compare(models: dict[str, Model], texts: Sequence[Ids]) -> dict[str, Tally]:
    """Every model against the reference, which is one of them."""
    tallies = {name: Tally() for name in models}
    with progress(sum(map(len, texts)), "text", " tokens") as bar:
        for ids in texts:
            for start in range(0, len(ids), CHUNK):
                stop = min(start + CHUNK, len(ids))
                reference = models[REFERENCE].log_probs(ids, start, stop)
                for name, model in models.items():
                    ours = reference if name == REFERENCE else model.log_probs(ids, start, stop)
                    tallies[name].add(ours, reference, ids[start + 1 : stop + 1])
                bar.update(stop - start)
    return tallies


def log_softmax(logits: NDArray[np.float32]) -> Doubles:
    """Over the last axis."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def table(found: Sequence[Quality]) -> str:
    """A line for each setting."""
    names = [
        q.setting if q.setting == q.weight_format else f"{q.setting} ({q.weight_format})"
        for q in found
    ]
    width = max(map(len, names)) + 2
    heads = ("MiB", "KV tok/GiB", "mean KL", "99 % KL", "top-1 %", "perplexity")
    lines = [f"{'weights':{width}}" + "".join(f"{head:>12}" for head in heads)]
    for name, q in zip(names, found, strict=True):
        lines.append(
            f"{name:{width}}{q.weight_bytes / 2**20:>12.1f}{q.kv_tokens:>12,}"
            f"{q.mean_kl:>12.5f}{q.p99_kl:>12.5f}{100 * q.top1_agreement:>12.2f}"
            f"{q.perplexity:>12.3f}"
        )
    return "\n".join(lines)


def block_tables(layout: KVLayout, states: tuple[int, int]) -> list[NDArray[np.int32]]:
    """[1, blocks] for each group, for one sequence that has all blocks; of groups of states, the
    blocks of the one before the step and of the one after it."""
    tables = []
    for group in range(len(layout.groups)):
        if layout.groups[group].is_state:
            tables.append(np.array([states], np.int32))
            continue
        pool = layout.pools[layout.pool_of(group)]
        count = (pool.num_blocks - 1) // len(pool.groups)
        first = 1 + count * pool.groups.index(group)
        tables.append(np.arange(first, first + count, dtype=np.int32)[None])
    return tables


def text_batch(
    ids: Ids, start: int, stop: int, tables: list[NDArray[np.int32]], block_size: int
) -> Batch:
    """A step of one sequence whose every token is chosen."""
    return Batch(
        token_ids=ids[start:stop],
        positions=np.arange(start, stop),
        attention=AttentionBatch(
            row_starts=np.array([0, stop - start], np.int32),
            context_lens=np.array([stop], np.int32),
            tables=tables,
            block_size=block_size,
        ),
        chosen=np.arange(stop - start),
        sampling=[SamplingRow(GREEDY, 0, n, n, ids, ()) for n in range(start + 1, stop + 1)],
        wanted=[],
    )


def _with(settings: EngineSettings, **changes: str) -> EngineSettings:
    return EngineSettings.flat(model=settings.model.model, **(settings.options() | changes))


def _check_fit(resolved: dict[str, Resolved]) -> None:
    needed = sum(found.backend.weight_bytes() for found in resolved.values())
    if needed > (free := free_memory("cpu")):
        raise CapacityError(
            f"the weights in {len(resolved)} formats take {show_bytes(needed)} and "
            f"{show_bytes(free)} are free; name fewer with --quantization"
        )
