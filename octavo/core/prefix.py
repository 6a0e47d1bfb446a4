"""Names for blocks by content: digest = sha256(parent digest | the block's token ids).

The root says what the KV depends on besides the tokens (model, number formats, epoch, salt ...), so
that nothing is ever found across them. A cryptographic hash, because a hit is not compared by
tokens.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Mapping, Sequence

TOKEN = 4  # bytes


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


def run_bytes(token_ids: Sequence[int]) -> bytes:
    """Token ids as int32, little endian."""
    tokens = array("i", token_ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tobytes()


def common_tokens(one: bytes | bytearray, other: bytes) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    differ = int.from_bytes(one[:length], "little") ^ int.from_bytes(other[:length], "little")
    bit = (differ & -differ).bit_length() - 1 if differ else 8 * length
    return bit // (8 * TOKEN)


def keyed(run: bytes, key: bytes) -> bytes:
    """A run's bytes, made others for every key: two of one key are equal where their tokens are."""
    stream = b""
    while len(stream) < len(run):
        part = len(stream).to_bytes(8, "little")
        stream += hashlib.sha256(b"key" + part + key).digest()
    mixed = int.from_bytes(run, "little") ^ int.from_bytes(stream[: len(run)], "little")
    return mixed.to_bytes(len(run), "little")


class Prefix:
    """A sequence's known tokens as blocks. Each digest is computed once, when it is first needed.

    `token_ids` is the sequence's own list, which only grows. `keys`: by block, what its KV depends
    on besides: the digest of an image, say, and where in it the block lies.
    """

    __slots__ = ("_digests", "_packed", "block_size", "keys", "token_ids")

    def __init__(
        self,
        root: bytes,
        block_size: int,
        token_ids: list[int],
        keys: Mapping[int, bytes] | None = None,
    ) -> None:
        self.block_size = block_size
        self.token_ids = token_ids
        self.keys = keys or {}
        self._digests = [root]
        self._packed = bytearray()

    def fork(self, token_ids: list[int]) -> Prefix:
        """The same blocks for a list that begins with the same tokens."""
        forked = Prefix(self._digests[0], self.block_size, token_ids, self.keys)
        forked._digests = list(self._digests)
        return forked

    def digest(self, num_blocks: int) -> bytes:
        """Of the first `num_blocks` blocks; the root for none."""
        size, digests = self.block_size, self._digests
        assert num_blocks * size <= len(self.token_ids), (num_blocks, size, len(self.token_ids))
        for block in range(len(digests) - 1, num_blocks):
            digests.append(hashlib.sha256(digests[-1] + self.run(block, size)).digest())
        return digests[num_blocks]

    def run(self, block: int, length: int) -> bytes:
        """The first `length` tokens of block number `block`, 4 bytes each."""
        start = block * self.block_size
        run = run_bytes(self.token_ids[start : start + length])
        return keyed(run, self.keys[block]) if block in self.keys else run

    def packed(self, count: int) -> bytearray:
        """At least the first `count` tokens, 4 bytes each; to be read only. No token is turned
        into bytes twice, as for a long sequence that takes longer than all else."""
        assert count <= len(self.token_ids), (count, len(self.token_ids))
        known, size = len(self._packed) // TOKEN, self.block_size
        if known >= count:
            return self._packed
        if not self.keys:
            self._packed += run_bytes(self.token_ids[known:count])
            return self._packed
        first = known // size
        del self._packed[first * size * TOKEN :]
        for block in range(first, -(-count // size)):
            self._packed += self.run(block, min(size, count - block * size))
        return self._packed
