"""How one layer's K, or V, lies in the pages of the torch backend: a class for each KV format.

A token's numbers are fixed when it is written, and read back from there by its own step too, so
that nothing depends on where steps were cut.
"""

from __future__ import annotations

from typing import Protocol

import torch

from octavo.models.memory import KV_SCALE_BYTES

_CODES = 127  # the largest code; the smallest is its negative
_LEAST = 1e-30  # numbers below count as zero, so that scales have finite inverses


class KVPages(Protocol):
    """Slots of `num_kv_heads` times `dim` numbers: [blocks, block_size]."""

    def write(self, blocks: torch.Tensor, offsets: torch.Tensor, x: torch.Tensor) -> None:
        """Token t goes to slot (blocks[t], offsets[t]). x: [T, num_kv_heads, dim]."""
        ...

    def read(self, blocks: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """[len(blocks), block_size, num_kv_heads, dim] in `dtype`."""
        ...


def kv_pages(kv_dtype: str, part: torch.Tensor) -> KVPages:
    """`part`: uint8 [blocks, block_size, num_kv_heads, bytes], which may be strided by page."""
    return Int8Pages(part) if kv_dtype == "int8" else FloatPages(part, getattr(torch, kv_dtype))


class FloatPages:
    """Numbers rounded to a float type."""

    def __init__(self, part: torch.Tensor, kept: torch.dtype) -> None:
        self._numbers = part.view(kept)

    def write(self, blocks: torch.Tensor, offsets: torch.Tensor, x: torch.Tensor) -> None:
        self._numbers[blocks, offsets] = x.to(self._numbers.dtype)

    def read(self, blocks: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return self._numbers[blocks].to(dtype)


class Int8Pages:
    """For each token and head `dim` codes, then their scale in float32.

    A number is its code times the scale, the largest has code 127 or -127. Where one is not
    finite, all `dim` read as NaN.
    """

    def __init__(self, part: torch.Tensor) -> None:
        self._part = part

    def write(self, blocks: torch.Tensor, offsets: torch.Tensor, x: torch.Tensor) -> None:
        x = x.float()
        most = x.abs().amax(-1, keepdim=True)
        most = most.where(most.isfinite(), torch.nan).where(~(most < _LEAST), 0.0)
        codes = (x * (_CODES / most)).where(most > 0, 0.0).round().to(torch.int8)
        scale = (most / _CODES).view(torch.uint8)
        self._part[blocks, offsets] = torch.cat([codes.view(torch.uint8), scale], -1)

    def read(self, blocks: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        found = self._part[blocks]
        codes, scale = found.tensor_split([found.shape[-1] - KV_SCALE_BYTES["int8"]], -1)
        return (codes.view(torch.int8) * scale.contiguous().view(torch.float32)).to(dtype)
