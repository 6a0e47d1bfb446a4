"""Logits processors: an operator's own code between the model's logits and all other controls.

Loaded once at start; requests name them. A processor looks at one row at a time and must depend on
what it is given alone, or the same request would no longer give the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.base.errors import ConfigError
from octavo.sampling.rows import SamplingRow, fault

Logits = NDArray[np.float32]


class LogitsProcessor(Protocol):
    """What an operator's class makes; it is made without arguments."""

    def __call__(
        self,
        logits: Logits,
        token_ids: NDArray[np.integer],
        prompt_len: int,
        extra_args: Mapping[str, Any],
    ) -> None:
        """Change `logits` [vocab] in place. `token_ids` are the prompt's and what was generated
        since, `extra_args` the request's. What it raises fails its row alone."""


Processors = Mapping[str, LogitsProcessor]
NO_PROCESSORS: Processors = MappingProxyType({})


def load_processors(places: str | None) -> dict[str, LogitsProcessor]:
    """Processors by name, from "name=module:Class", several with commas between.

    Raises:
        ConfigError: an entry has another form, repeats a name, or cannot be imported and made.
    """
    loaded: dict[str, LogitsProcessor] = {}
    for entry in (places or "").split(","):
        if entry := entry.strip():
            name, _, place = entry.partition("=")
            if name in loaded:
                raise ConfigError(f"logits_processors: {name!r} is there twice")
            loaded[name] = _load(entry, name, place)
    return loaded


def _load(entry: str, name: str, place: str) -> LogitsProcessor:
    module, _, attribute = place.partition(":")
    if not (name and module and attribute):
        raise ConfigError(f"logits_processors: {entry!r} is not of the form name=module:Class")
    try:
        made = getattr(import_module(module), attribute)()
    except Exception as error:  # whatever the operator's code raises
        raise ConfigError(
            f"logits_processors: {entry!r} cannot be made: {type(error).__name__}: {error}"
        ) from error
    if not callable(made):
        raise ConfigError(f"logits_processors: {entry!r} makes what cannot be called")
    processor: LogitsProcessor = made
    return processor


def users(rows: Sequence[SamplingRow]) -> list[int]:
    """Indices of the rows that name processors."""
    return [i for i, row in enumerate(rows) if row.params.logits_processors and row.given is None]


def process(logits: Logits, row: SamplingRow, processors: Processors) -> str | None:
    """Let the processors that the row names change its `logits` [vocab], one after another.

    Returns why the row fails, if it does: before that nothing is to be drawn.
    """
    if wrong := fault(float(logits[logits.argmax()])):
        return wrong
    known = row.known.view()
    known.flags.writeable = False
    for name in row.params.logits_processors or ():
        if name not in processors:
            return f"logits processor {name!r} is not loaded"
        try:
            processors[name](logits, known, row.prompt_len, row.params.extra_args or {})
        except Exception as error:  # the operator's code may raise anything
            return f"logits processor {name!r} failed: {type(error).__name__}: {error}"
        if not logits.max() < np.inf:  # NaN neither
            return f"logits processor {name!r} left NaN or +inf"
    return None
