"""KV groups of a model and of one that drafts for it, and how they are cut together."""

from __future__ import annotations

import pytest

from octavo.base.kv import KVGroup
from octavo.models.beside import groups_together
from octavo.models.memory import equal_pages, kv_layout


def group(name: str, layers: int, bytes_each: int, window: int | None = None) -> KVGroup:
    return KVGroup(
        name=name,
        kind="full" if window is None else "window",
        layers=tuple(range(layers)),
        bytes_per_token=layers * bytes_each,
        window=window,
    )


def test_layers_of_one_kind_share_a_group_and_others_have_their_own():
    target = (group("full", 4, 100), group("window-32", 8, 100, 32))
    draft = (group("full", 2, 60), group("window-64", 2, 60, 64))
    full, window, other = groups_together(target, draft, 12)
    assert full.layers == (0, 1, 2, 3, 12, 13)
    assert full.bytes_per_token == 520
    assert (window, other.layers, other.window) == (target[1], (12, 13), 64)


@pytest.mark.parametrize("bytes_each", [60, 100])
def test_groups_are_cut_only_where_all_their_layers_keep_equally_many_bytes(bytes_each):
    target = (group("full", 2, 100), group("window-32", 10, 100, 32))
    draft = (group("full", 1, bytes_each), group("window-32", 5, bytes_each, 32))
    together = groups_together(target, draft, 12)
    cut = equal_pages(together)
    if bytes_each == 100:
        assert [len(part.layers) for part in cut] == [3, 3, 3, 3, 3, 3]
    else:  # as many bytes a layer in both groups, on average
        assert cut == together
        assert [part.uneven for part in cut] == [True, True]


def test_a_page_counts_the_bytes_of_both():
    together = groups_together((group("full", 4, 128),), (group("full", 2, 64),), 4)
    [pool] = kv_layout(together, 16, 1_000_000).pools
    assert pool.page_bytes == 16 * (4 * 128 + 2 * 64)
