"""The prefix indexes there are, each with the order in which its blocks are evicted."""

from __future__ import annotations

from collections.abc import Callable

from octavo.core.block_pool import EvictionOrder, LeastRecentlyUsed
from octavo.core.leaf_first import LeafFirst
from octavo.core.prefix_index import HashIndex, PrefixIndex
from octavo.core.radix_index import RadixIndex


def _hash(block_size: int) -> tuple[PrefixIndex, EvictionOrder]:
    return HashIndex(), LeastRecentlyUsed()


def _radix(block_size: int) -> tuple[PrefixIndex, EvictionOrder]:
    index = RadixIndex(block_size)
    return index, LeafFirst(index)


# Name -> maker, for one pool of blocks of so many tokens.
PREFIX_INDEXES: dict[str, Callable[[int], tuple[PrefixIndex, EvictionOrder]]] = {
    "hash": _hash,
    "radix": _radix,
}
