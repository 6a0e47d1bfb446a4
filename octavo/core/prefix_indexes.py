"""The prefix indexes there are, each with the order in which its blocks are evicted."""

from __future__ import annotations

from octavo.core.block_pool import EvictionOrder, LeastRecentlyUsed
from octavo.core.prefix_index import HashIndex, PrefixIndex

PREFIX_INDEXES = ("hash",)


def make_index(name: str) -> tuple[PrefixIndex, EvictionOrder]:
    """For one pool."""
    assert name in PREFIX_INDEXES, name
    return HashIndex(), LeastRecentlyUsed()
