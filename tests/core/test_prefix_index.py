"""Both prefix indexes, and a brute-force one; digests that must differ or be equal."""

from __future__ import annotations

import random

import pytest
from prefix_oracle import Checked

from octavo.core.block_pool import BlockPool, LeastRecentlyUsed
from octavo.core.prefix import Prefix, root_digest
from octavo.core.prefix_index import HashIndex, PrefixIndex
from octavo.core.radix_index import RadixIndex

BLOCK = 4
GROUPS = 3
ROOTS = (b"r", b"s")
INDEXES = {"hash": lambda size: HashIndex(), "radix": RadixIndex}


@pytest.fixture(params=INDEXES)
def index(request: pytest.FixtureRequest) -> PrefixIndex:
    return INDEXES[request.param](BLOCK)


class Prompts:
    """Prompts that begin like earlier ones and part from them anywhere."""

    def __init__(self, rng: random.Random, size: int) -> None:
        self.rng, self.size = rng, size
        self.earlier: list[list[int]] = [[]]

    def draw(self) -> Prefix:
        rng = self.rng
        earlier = rng.choice(self.earlier)
        kept = earlier[: rng.randint(0, len(earlier))] if rng.random() < 0.5 else earlier
        new = [rng.randrange(2) for _ in range(rng.randrange(3 * self.size))]
        tokens = (kept + new)[: 12 * self.size]
        self.earlier = [*self.earlier[-30:], tokens]
        return Prefix(rng.choice(ROOTS), self.size, tokens)


def lengths(rng: random.Random, prefix: Prefix, block: int) -> list[int]:
    """How a block becomes known: at once, or some of its tokens first."""
    most = min(len(prefix.token_ids) - block * prefix.block_size, prefix.block_size)
    return sorted({rng.randint(1, most) for _ in range(rng.randrange(3))} | {most})


def play(size: int, forgetting: bool, count: int) -> None:
    """Ask and tell both indexes of `count` prompts with holes, tails, several groups and roots."""
    rng = random.Random(f"{size} {forgetting}")
    prompts, hits, runs, holder = Prompts(rng, size), 0, 0, 0
    radix = RadixIndex(size)
    index = Checked(size, HashIndex(), radix)
    for _ in range(count):
        prefix, group = prompts.draw(), rng.randrange(GROUPS)
        full = len(prefix.token_ids) // size
        block = rng.randint(0, full)
        hits += len(index.held(group, prefix, full, whole=True))
        index.held(group, prefix, block, whole=False)
        besides = {h for h in index.oracle.after(group, prefix, block) if rng.random() < 0.2}
        runs += index.longest_run(group, prefix, block, rng.randint(0, size), besides)[1]
        for block in range(-(-len(prefix.token_ids) // size)):
            if rng.random() < 0.4:
                holder += 1
                for length in lengths(rng, prefix, block):
                    index.publish(group, prefix, block, length, holder)
        while len(index) > 100 and forgetting:
            index.forget(rng.choice(list(index.oracle.runs)))
    assert hits > count / 3 and runs > count / 10
    for gone in range(1, holder + 1):
        index.forget(gone)
    assert not (radix._roots or radix._nodes or radix._spots)


@pytest.mark.parametrize("forgetting", [False, True])
@pytest.mark.parametrize("size", [1, 4, 16])
def test_both_indexes_answer_as_brute_force_does(size: int, forgetting: bool):
    play(size, forgetting, count=1700)


@pytest.mark.slow
@pytest.mark.parametrize("forgetting", [False, True])
@pytest.mark.parametrize("size", [1, 4, 16])
def test_both_indexes_answer_as_brute_force_does_for_long(size: int, forgetting: bool):
    play(size, forgetting, count=10_000)


def test_groups_of_one_pool_do_not_see_each_other(index: PrefixIndex):
    prefix = Prefix(b"r", BLOCK, [1, 2, 3, 4])
    assert index.publish(0, prefix, 0, BLOCK, 7)
    assert index.held(1, prefix, 1, whole=True) == []
    assert index.longest_run(1, prefix, 0, BLOCK) == (0, 0)
    assert index.publish(1, prefix, 0, BLOCK, 8)
    assert (index.held(0, prefix, 1, True), index.held(1, prefix, 1, True)) == ([7], [8])


def test_nothing_is_found_under_another_root(index: PrefixIndex):
    tokens = [1, 2, 3, 4, 5, 6]
    here, there = Prefix(b"r", BLOCK, tokens), Prefix(b"s", BLOCK, tokens)
    index.publish(0, here, 0, 4, 7)
    index.publish(0, here, 1, 2, 8)
    assert index.held(0, there, 1, whole=True) == []
    assert index.longest_run(0, there, 0, 4) == index.longest_run(0, there, 1, 2) == (0, 0)


def test_the_first_with_a_content_keeps_it(index: PrefixIndex):
    prefix = Prefix(b"r", BLOCK, [1, 2, 3, 4])
    assert index.publish(0, prefix, 0, BLOCK, 7)
    assert not index.publish(0, prefix, 0, BLOCK, 8)
    assert not index.publish(0, prefix, 0, 2, 9)
    assert (8 in index, 9 in index, index.held(0, prefix, 1, True)) == (False, False, [7])


def test_a_tail_grows_until_the_block_is_full(index: PrefixIndex):
    prefix = Prefix(b"r", BLOCK, [1, 2, 3, 4])
    for length in (1, 2, 4):
        assert index.publish(0, prefix, 0, length, 7)
        assert (index.tokens(7), len(index)) == (length, 1)
        assert index.longest_run(0, prefix, 0, BLOCK) == (7, length)
    assert index.held(0, prefix, 1, whole=True) == [7]


def test_the_run_that_shares_most_is_found_on_either_side(index: PrefixIndex):
    for holder, run in enumerate([[5, 5, 5, 5], [5, 6, 1, 1], [5, 6, 7, 1], [9]], 1):
        index.publish(0, Prefix(b"r", BLOCK, run), 0, len(run), holder)
    wanted = Prefix(b"r", BLOCK, [5, 6, 7, 0])
    assert index.longest_run(0, wanted, 0, 4) == (3, 3)
    assert index.longest_run(0, wanted, 0, 4, besides={3}) == (2, 2)
    assert index.longest_run(0, wanted, 0, 4, besides={3, 2}) == (1, 1)
    assert index.longest_run(0, wanted, 0, 4, besides={3, 2, 1}) == (4, 0)
    assert index.longest_run(0, wanted, 0, 4, besides={4, 3, 2, 1}) == (0, 0)


def test_digests_are_extended_not_recomputed():
    tokens = list(range(40))
    prefix = Prefix(b"r", BLOCK, tokens)
    third = prefix.digest(3)
    assert prefix.digest(10) == Prefix(b"r", BLOCK, tokens).digest(10)
    assert prefix.digest(3) is third
    assert prefix.fork([*tokens, 1]).digest(10) == prefix.digest(10)


def test_tokens_are_packed_as_they_become_known():
    tokens = [1, 2, 3]
    prefix = Prefix(b"r", BLOCK, tokens)
    assert prefix.packed(2)[:8] == prefix.run(0, 2)
    tokens += [4, -1, 70_000]
    assert prefix.packed(6) == prefix.run(0, 4) + prefix.run(1, 2)


def test_digests_differ_where_anything_does():
    def digest(root, tokens, keys=None):
        return Prefix(root, len(tokens), tokens, keys).digest(1)

    seen = {
        digest(b"p", [1, 2, 3, 4]),
        digest(b"q", [1, 2, 3, 4]),
        digest(b"p", [1, 2, 3, 5]),
        digest(b"p", [1, 2, 4, 3]),
        digest(b"p", [1, 2, 3]),
        digest(b"p", [1, 2, 3, 4], {0: b"image at 0"}),
        digest(b"p", [1, 2, 3, 4], {0: b"image at 1"}),
    }
    assert len(seen) == 7
    assert digest(b"p", [1, 2, 3, 4], {1: b"image"}) in seen  # of a block behind
    roots = [
        {"model": "a"},
        {"salt": "a"},
        {"model": "a", "salt": "b"},
        {"model": "ab", "salt": ""},
        {"model": "", "salt": "ab"},
    ]
    assert len({root_digest(extras) for extras in roots}) == len(roots)
    assert root_digest({"a": "1", "b": "2"}) == root_digest({"b": "2", "a": "1"})


def test_taking_a_free_block_out_of_the_middle(index: PrefixIndex):
    pool = BlockPool(6, index, LeastRecentlyUsed())
    table = pool.allocate(5)
    prefix = Prefix(b"r", BLOCK, list(range(5 * BLOCK)))
    for block, holder in enumerate(table):
        index.publish(0, prefix, block, BLOCK, holder)
    pool.release(table)
    assert list(pool.free_blocks()) == table[::-1]
    pool.share([table[2]])
    assert list(pool.free_blocks()) == [table[4], table[3], table[1], table[0]]
    pool.share([table[2]])
    pool.release([table[2]])
    assert (pool.refs(table[2]), pool.num_free) == (1, 4)
