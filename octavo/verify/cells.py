"""The matrix: conditions under which a request must be answered as it is alone. A row is a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from octavo.verify.subject import ITSELF
from octavo.verify.ways import (
    Way,
    drafted,
    forked,
    in_process,
    partial_hit,
    preempted,
    single,
    together,
    warm,
)

# A prompt in one chunk, with states of hybrids kept wherever a block ends, to have hits there.
REFERENCE: Mapping[str, Any] = MappingProxyType(
    {"max_num_batched_tokens": 4096, "max_num_seqs": 64, "block_size": 16, "state_interval": 16}
)


@dataclass(frozen=True)
class Cell:
    """`settings` are flat options in place of the reference's; `quick`: one in so many requests
    will do where time matters, an odd number, as ways of sampling come again after eight."""

    name: str
    way: Way
    settings: Mapping[str, Any] = field(default_factory=dict)
    quick: int = 1


def _chunk(tokens: int) -> dict[str, int]:
    return {"max_num_batched_tokens": tokens, "max_num_seqs": min(tokens, 32)}


def by_head(name: str) -> Cell:
    """An EAGLE head drafts."""
    return Cell("drafts: eagle", drafted, {"speculation": "eagle", "draft_model": name}, quick=7)


CELLS = (
    Cell("batch of 32", together),
    Cell("warm", warm, quick=3),
    Cell("partial hit", partial_hit, quick=3),
    Cell("one answer of several", single),
    Cell("forked at a token", forked),
    Cell("chunk of 64", together, _chunk(64), quick=3),
    Cell("preempted twice", preempted, _chunk(64), quick=3),
    Cell("preempted twice, all lost", preempted, _chunk(64) | {"prefix_caching": False}, quick=5),
    Cell("chunk of 7", together, _chunk(7), quick=5),
    Cell("chunk of 1", together, _chunk(1), quick=11),
    Cell("radix index, warm", warm, {"prefix_index": "radix"}, quick=9),
    Cell("1 thread", together, {"threads": 1}, quick=5),
    Cell("2 threads", together, {"threads": 2}, quick=5),
    Cell("engine process", in_process, quick=3),
    Cell("planned ahead", together, {"async_scheduling": True}, quick=5),
    Cell("ahead, preempted", preempted, _chunk(64) | {"async_scheduling": True}, quick=5),
    Cell("drafts: ngram", drafted, {"speculation": "ngram"}, quick=5),
    Cell("drafts: suffix", drafted, {"speculation": "suffix"}, quick=5),
    Cell("drafts: model", drafted, {"speculation": "draft", "draft_model": ITSELF}, quick=7),
    Cell("drafts, ahead", drafted, {"speculation": "ngram", "async_scheduling": True}, quick=5),
)
