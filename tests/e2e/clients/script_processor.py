"""A logits processor: the model says what the request wants it to, as far as it may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class Script:
    """`extra_args["script"]`: token ids, one after another."""

    def __call__(
        self,
        logits: np.ndarray,
        token_ids: np.ndarray,
        prompt_len: int,
        extra_args: Mapping[str, Any],
    ) -> None:
        place = len(token_ids) - prompt_len
        script = extra_args["script"]
        if place < len(script):
            logits[script[place]] = 1000.0
