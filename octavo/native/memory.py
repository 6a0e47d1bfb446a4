"""Bytes of packed weights, before any is packed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from octavo.models.spec import ModelSpec
from octavo.native.interface import Native

PANEL = 16  # outputs that are packed together


def weight_bytes(native: Native, spec: ModelSpec, formats: Mapping[str, str]) -> int:
    """Exactly what `native.weights` will allocate for `spec`; a tied head counts once."""
    total = 0
    for param in spec.params():
        if param.name not in formats:
            total += 4 * math.prod(param.shape)
        else:
            rows, columns = param.shape
            total += -(-rows // PANEL) * native.panel_bytes(formats[param.name], columns)
    return total
