"""Names for blocks by content: digest = sha256(parent digest | the block's token ids).

The root says what the KV depends on besides the tokens (model, number format, salt ...), so that
nothing is ever found across them. A cryptographic hash, because a hit is not compared by tokens.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Mapping, Sequence


def root_digest(extras: Mapping[str, str | bytes]) -> bytes:
    """The parent of every first block. Tags and lengths keep the fields apart: a salt can never
    be taken for a model's name."""
    digest = hashlib.sha256()
    for tag in sorted(extras):
        value = extras[tag]
        for part in (tag.encode(), value.encode() if isinstance(value, str) else value):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.digest()


def block_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    tokens = array("i", token_ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    return hashlib.sha256(parent + tokens.tobytes()).digest()


class HashChain:
    """The digests of one sequence's full blocks, each computed once, when it is first needed."""

    __slots__ = ("_block_size", "_digests", "_root")

    def __init__(self, root: bytes, block_size: int) -> None:
        self._root = root
        self._block_size = block_size
        self._digests: list[bytes] = []

    def upto(self, token_ids: Sequence[int], num_blocks: int) -> list[bytes]:
        """Digests of the first `num_blocks` blocks of `token_ids`, whose tokens never change."""
        size, digests = self._block_size, self._digests
        assert num_blocks * size <= len(token_ids), (num_blocks, size, len(token_ids))
        for block in range(len(digests), num_blocks):
            parent = digests[-1] if digests else self._root
            digests.append(block_digest(parent, token_ids[block * size : (block + 1) * size]))
        return digests[:num_blocks]
