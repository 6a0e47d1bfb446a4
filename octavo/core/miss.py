"""Why a prompt was not found whole in the cache: what is remembered of blocks that are gone, and of
how prompts began.

An owner is told of its own prompts alone: that another one's cache holds the same text is nobody
else's affair.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Literal

Miss = Literal["cold", "diverged", "evicted", "state", "salt", "adapter", "epoch", "disabled"]
MEMORY = 2**14  # entries of each kind
_ROOTS: tuple[Miss, ...] = ("epoch", "adapter", "salt")  # what a prompt's root may differ in


class Recent:
    """A mapping that forgets its oldest entries."""

    def __init__(self, most: int = MEMORY) -> None:
        self._most = most
        self._entries: OrderedDict[bytes, Mapping[str, str]] = OrderedDict()

    def get(self, key: bytes) -> Mapping[str, str] | None:
        return self._entries.get(key)

    def put(self, key: bytes, value: Mapping[str, str]) -> None:
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)


class Misses:
    """Answers why. `evicted` is told of every full block that is given up, `began` of every prompt
    that starts."""

    def __init__(self) -> None:
        self._evicted = Recent()
        self._began = Recent()

    def evicted(self, digest: bytes) -> None:
        self._evicted.put(digest, {})

    def began(self, owner: str, run: bytes, root: Mapping[str, str]) -> None:
        """`run`: the first block's tokens; `root`: what the prompt's KV depends on besides."""
        self._began.put(_key(owner, run), root)

    def why(
        self,
        owner: str,
        run: bytes,
        root: Mapping[str, str],
        *,
        hit: int,
        missing: Iterable[bytes],
        diverged: bool,
        stateless: bool,
    ) -> Miss:
        """`hit`: tokens found; `missing`: digests of blocks, one of which would have been the next;
        `diverged`: the cache goes on with other tokens; `stateless`: it goes on with the same ones,
        but no state was kept behind these."""
        if any(self._evicted.get(digest) is not None for digest in missing):
            return "evicted"
        if diverged:
            return "diverged"
        if stateless:
            return "state"
        before = self._began.get(_key(owner, run)) if hit == 0 else None
        if before is None:
            return "cold"
        return next((name for name in _ROOTS if before.get(name) != root.get(name)), "cold")


def _key(owner: str, run: bytes) -> bytes:
    return len(owner).to_bytes(4, "little") + owner.encode() + run
