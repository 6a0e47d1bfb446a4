"""Whether a class of models computes the same packed, paged and in chunks as it does by itself.

A tiny copy with random weights is asked twice: by Transformers' own attention, one whole sequence
at a time; and with its attention replaced, several sequences in one step, cut into chunks, over
blocks that lie anywhere and hold NaN where nothing was written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from octavo.attention.batch import AttentionBatch
from octavo.attention.reference import ReferenceAttention
from octavo.base.errors import ModelError
from octavo.base.kv import KVLayout, Pool
from octavo.fallback.interface import NAME, register
from octavo.fallback.packed import PackedModel, Paged, record
from octavo.fallback.refuse import refuse_other_states
from octavo.fallback.shapes import Recorder, kv_groups
from octavo.fallback.shrink import shrunk

TOLERANCE = 2e-4  # of logits, relative to the largest
MOST_PARAMETERS = 20_000_000

_BLOCK = 4  # tokens
_LENGTHS = (29, 21, 10, 3)
_CHUNKS = ((7, 1, 5), (1, 9, 1), (10,), (3,))  # of each sequence, again and again


def self_test(model_class: Any, config: Any) -> bool:
    """Whether the model has to be told how long the past of each token is, as those must that
    count positions from the length of their cache. Takes about a second.

    Raises:
        ModelError: what the tiny copy computes is something else; the message says why.
    """
    refuse_other_states(model_class, config)
    register()
    try:
        alone, packed = _pair(model_class, shrunk(config))
        expected = _Expected(alone)
        plain = expected.difference(packed, asks_past=False)
        if plain <= TOLERANCE:
            return False
        if _agrees(expected, packed):
            return True
    except ModelError:
        raise
    except KeyError as error:
        if error.args == (NAME,):
            raise ModelError("its class does not use Transformers' attention interface") from error
        raise ModelError(_cannot(error)) from error
    except Exception as error:  # of code that is not ours
        raise ModelError(_cannot(error)) from error
    raise ModelError(
        f"its logits change where sequences share a step, by {plain:.1e} of the largest: "
        "something but attention mixes their tokens"
    )


def _cannot(error: Exception) -> str:
    cause = error.__cause__ or error
    line = str(cause).strip().partition("\n")[0]
    return f"a tiny copy of it cannot be tested: {type(cause).__name__}: {line}"


def _agrees(expected: _Expected, packed: nn.Module) -> bool:
    try:
        return expected.difference(packed, asks_past=True) <= TOLERANCE
    except Exception:  # it wants something else of a cache
        return False


def with_attention(config: Any, name: str) -> Any:
    """A copy whose text decoder attends by the implementation `name`; other parts, by their own."""
    config = copy.deepcopy(config)
    config._attn_implementation = {"": name, **dict.fromkeys(config.sub_configs, "eager")}
    return config


def _pair(model_class: Any, config: Any) -> tuple[nn.Module, nn.Module]:
    """Twice the same random model: with its own attention, and with ours."""
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class._from_config(config).parameters())
    if size > MOST_PARAMETERS:
        raise ModelError(f"its tiny copy would still have {size:,} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        models = [
            model_class._from_config(with_attention(config, name), dtype=torch.float32).eval()
            for name in ("eager", NAME)
        ]
    randomise(models[0])
    models[1].load_state_dict(models[0].state_dict())
    return models[0], models[1]


def randomise(model: nn.Module) -> None:
    """Wide enough that every parameter, position and window shows in the logits; reproducible."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for param in model.parameters():
            noise = torch.randn(param.shape, generator=generator) * 0.15
            if param.dim() > 1:
                param.copy_(noise)
            else:  # norms, biases, scales: around what the class begins with
                param.add_(noise * torch.where(param == 0, 1.0, param.abs()))


class _Expected:
    """Prompts, and the logits that a model gives to each by itself."""

    def __init__(self, alone: nn.Module) -> None:
        random = torch.Generator().manual_seed(1)
        size = cast("Any", alone).config.get_text_config().vocab_size
        low = min(8, size // 2)  # special tokens come first
        self.prompts = [torch.randint(low, size, (n,), generator=random) for n in _LENGTHS]
        with torch.inference_mode():
            found = [alone(input_ids=p[None], use_cache=False) for p in self.prompts]
        self.logits = [each.logits[0] for each in found]

    @torch.inference_mode()
    def difference(self, packed: nn.Module, asks_past: bool) -> float:
        """Of the other model's logits, relative to the largest; of all tokens in some steps, of a
        few in others."""
        compute, begin, layout = _paged(packed, self.prompts[0], asks_past)
        tables = _tables(layout)
        worst = 0.0
        for step, rows in enumerate(_steps()):
            begin(_batch(rows, tables))
            where = [(i, p) for i, start, end in rows for p in range(start, end)]
            chosen = [n for n in range(len(where)) if step % 2 == 0 or n % 3 == 0]
            found = compute(
                torch.cat([self.prompts[i][start:end] for i, start, end in rows]),
                torch.tensor([p for _, p in where]),
                torch.tensor(chosen),
            )
            for (i, p), logits in zip([where[n] for n in chosen], found, strict=True):
                wanted = self.logits[i][p]
                off = float((logits - wanted).abs().max() / wanted.abs().max())
                worst = max(worst, off if off == off else float("inf"))
        return worst


_Row = tuple[int, int, int]  # sequence, first position, behind the last


def _steps() -> Iterator[list[_Row]]:
    done = [0] * len(_LENGTHS)
    for step in range(max(_LENGTHS)):
        rows = []
        for i, length in enumerate(_LENGTHS):
            end = min(done[i] + _CHUNKS[i][step % len(_CHUNKS[i])], length)
            if end > done[i]:
                rows.append((i, done[i], end))
                done[i] = end
        if rows:
            yield rows


def _paged(
    model: Any, prompt: torch.Tensor, asks_past: bool
) -> tuple[PackedModel, Callable[[AttentionBatch], None], KVLayout]:
    config = model.config.get_text_config(decoder=True)
    recorder = record(model, prompt, asks_past)
    attends = {n: slot.attend for n, slot in enumerate(recorder.slots)}
    layout = _layout(recorder)
    attention = ReferenceAttention(attends, layout, "float32", torch.device("cpu"))
    for pages in attention.pools:
        pages.fill_(255)  # NaN
    paged = Paged(config, recorder.slot_of, attention)
    return PackedModel(model, paged, asks_past), paged.begin, layout


def _layout(recorder: Recorder) -> KVLayout:
    groups = kv_groups(recorder.slots, "float32")
    blocks = 1 + sum(-(-n // _BLOCK) for n in _LENGTHS)
    pools = tuple(
        Pool(page_bytes=group.page_bytes(_BLOCK), num_blocks=blocks, groups=(g,))
        for g, group in enumerate(groups)
    )
    return KVLayout(block_size=_BLOCK, groups=groups, pools=pools)


def _tables(layout: KVLayout) -> list[list[np.ndarray]]:
    """By group and sequence: blocks in any order."""
    random = np.random.default_rng(2)
    counts = [-(-n // _BLOCK) for n in _LENGTHS]
    cuts = np.cumsum(counts)[:-1]
    return [
        np.split(random.permutation(sum(counts)).astype(np.int32) + 1, cuts) for _ in layout.groups
    ]


def _batch(rows: list[_Row], tables: list[list[np.ndarray]]) -> AttentionBatch:
    starts = np.cumsum([0, *(end - start for _, start, end in rows)])
    most = max(map(len, tables[0]))
    return AttentionBatch(
        row_starts=starts.astype(np.int32),
        context_lens=np.array([end for _, _, end in rows], dtype=np.int32),
        tables=[
            np.stack([np.pad(group[i], (0, most - len(group[i]))) for i, _, _ in rows])
            for group in tables
        ],
        block_size=_BLOCK,
    )
