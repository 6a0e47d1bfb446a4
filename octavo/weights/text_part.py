"""The text decoder's tensors of a model that also sees or hears, under the names that the decoder
has alone."""

from __future__ import annotations

import numpy as np

from octavo.weights.checkpoint import Checkpoint, RawTensor

_PREFIXES = {"language_model.": "", "model.language_model.": "model."}


class TextPart(Checkpoint):
    """Of files written by either generation of Transformers; what is not text is not there."""

    def __init__(self, whole: Checkpoint) -> None:
        self._whole = whole
        self._names = {text: name for name in whole.shapes() if (text := _text_name(name))}

    def identity(self) -> str:
        return self._whole.identity()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = self._whole.shapes()
        return {text: shapes[name] for text, name in self._names.items()}

    def stored(self, name: str) -> str:
        return self._whole.stored(self._names[name])

    def read(self, name: str) -> RawTensor:
        return self._whole.read(self._names[name])

    def blocks(self, name: str) -> np.ndarray:
        return self._whole.blocks(self._names[name])

    def codes(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self._whole.codes(self._names[name])


def _text_name(name: str) -> str | None:
    for prefix, text in _PREFIXES.items():
        if name.startswith(prefix):
            return text + name.removeprefix(prefix)
    return name if name.startswith("lm_head.") else None
