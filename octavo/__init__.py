"""Octavo: LLM inference and serving from a paged KV cache.

`from octavo import LLM, SamplingParams` is cheap; a tensor library is imported when an `LLM` is
made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.base.output import CompletionOutput, RequestOutput
    from octavo.base.sampling_params import BeamSearchParams, SamplingParams
    from octavo.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "BeamSearchParams", "CompletionOutput", "RequestOutput", "SamplingParams"]

_PLACES = {
    "LLM": "octavo.llm",
    "BeamSearchParams": "octavo.base.sampling_params",
    "SamplingParams": "octavo.base.sampling_params",
    "RequestOutput": "octavo.base.output",
    "CompletionOutput": "octavo.base.output",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
