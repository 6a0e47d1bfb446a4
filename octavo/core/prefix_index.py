"""Which block holds which content. Knows digests and block ids, not sequences."""

from __future__ import annotations

from collections.abc import Sequence


class HashIndex:
    """Content -> block, by digest, for the groups of one pool.

    The first block published under a digest keeps it: a second block of equal content stays
    nameless and is the first to be reused when it is freed, so no content is kept twice.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, bytes], int] = {}
        self._keys: dict[int, tuple[int, bytes]] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def match(self, group: int, digests: Sequence[bytes]) -> list[int]:
        """Blocks of the longest prefix of `digests` that is held for `group`."""
        found: list[int] = []
        for digest in digests:
            block = self._blocks.get((group, digest))
            if block is None:
                break
            found.append(block)
        return found

    def publish(self, group: int, digest: bytes, block: int) -> bool:
        """Name `block` by its content; False where the content has a block already."""
        assert block not in self._keys, f"block {block} is published already"
        key = (group, digest)
        if key in self._blocks:
            return False
        self._blocks[key] = block
        self._keys[block] = key
        return True

    def forget(self, block: int) -> None:
        """Remove what is known of `block`; nothing happens if nothing is."""
        key = self._keys.pop(block, None)
        if key is not None:
            del self._blocks[key]
