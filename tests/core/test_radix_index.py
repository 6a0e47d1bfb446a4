"""Eviction from a radix tree: random play over one pool, what each step costs, small cases."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pool_worlds import BLOCK, FULL, WINDOW, World

from octavo.core.block_pool import BlockPool, LeastRecentlyUsed
from octavo.core.leaf_first import LeafFirst
from octavo.core.prefix import Prefix
from octavo.core.radix_index import RadixIndex
from octavo.core.radix_tree import Node


def survivors_are_prefixes(world: World) -> bool:
    """Every block that is held can be reached from the beginning."""
    oracle = world.index.oracle
    return all(
        len(list(oracle.before(block))) * BLOCK == len(oracle.places[block][2])
        for block in oracle.runs
    )


def prompt(rng: random.Random) -> list[int]:
    return [int(rng.random() < 0.15) for _ in range(rng.randrange(1, 8 * BLOCK))]


def step(world: World, rng: random.Random) -> None:
    """Anything that may happen to a pool."""
    some = rng.choice(world.live) if world.live else None
    kind = rng.choice(["add", "add", "grow", "grow", "grow", "fork", "tail", "finish", "forget"])
    if kind == "add" and len(world.live) < 5:
        world.add(rng.choice([b"r", b"r", b"s"]), prompt(rng))
    elif kind == "grow" and some:
        world.grow(some, prompt(rng)[: 2 * BLOCK])
    elif kind == "fork" and some and len(world.live) < 5:
        world.fork(some, prompt(rng)[: 2 * BLOCK])
    elif kind == "tail" and some:
        world.tail(some)
    elif kind == "finish" and some:
        if rng.random() < 0.7:
            world.tail(some)
        world.finish(some)
    elif kind == "forget" and world.index.oracle.runs and rng.random() < 0.3:
        world.pool.forget(rng.choice(sorted(world.index.oracle.runs)))


@pytest.mark.parametrize("window", [0, 2, 7])
def test_random_play_gives_up_free_leaves_first_and_nothing_in_use(window: int):
    rng = random.Random(window)
    world = World(num_blocks=48, window=window)
    for _ in range(1500):
        step(world, rng)
        world.check()
    assert world.hits > 60
    assert world.order.pops["leaf"] > 200 and world.order.pops["other"] > 10
    world.drain()


class RadixPlay(RuleBasedStateMachine):
    """The same, with counterexamples made short."""

    @initialize(num_blocks=st.integers(2, 24), window=st.sampled_from([0, 1, 2, 7]))
    def start(self, num_blocks, window):
        self.world = World(num_blocks, window)

    @rule(root=st.sampled_from([b"r", b"s"]), tokens=st.lists(st.integers(0, 1), min_size=1))
    def add(self, root, tokens):
        self.world.add(root, list(tokens))

    @rule(pick=st.integers(0, 9), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=7))
    def grow(self, pick, tokens):
        if self.world.live:
            self.world.grow(self.world.live[pick % len(self.world.live)], tokens)

    @rule(pick=st.integers(0, 9), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=7))
    def fork(self, pick, tokens):
        if self.world.live:
            self.world.fork(self.world.live[pick % len(self.world.live)], tokens)

    @rule(pick=st.integers(0, 9), tail=st.booleans())
    def finish(self, pick, tail):
        if self.world.live:
            sequence = self.world.live[pick % len(self.world.live)]
            if tail:
                self.world.tail(sequence)
            self.world.finish(sequence)

    @rule(block=st.integers(1, 23))
    def forget(self, block):
        self.world.pool.forget(block)

    @rule()
    def clear(self):
        self.world.pool.clear()
        assert not self.world.order.free

    @invariant()
    def books_balance(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.drain()


TestRadixPlay = RadixPlay.TestCase
TestRadixPlay.settings = settings(max_examples=60, stateful_step_count=30)


@pytest.mark.slow
class TestLongRadixPlay(RadixPlay.TestCase):
    settings = settings(max_examples=2000, stateful_step_count=80)


def test_the_order_that_is_told_is_the_order_that_is_kept():
    rng = random.Random(1)
    world = World(num_blocks=60, window=4)
    for _ in range(400):
        step(world, rng)
    told = list(world.pool.free_blocks())
    assert len(told) > 20
    assert world.pool.allocate(len(told)) == told


def test_what_survives_can_be_reached_from_the_beginning():
    """Nothing here is computed twice and there is no window: a leaf is always free, and the order
    is that of the least recently used."""
    rng = random.Random(2)
    world = World(num_blocks=40, window=0)
    lru = World(num_blocks=40, window=0)
    lru.pool = BlockPool(40, lru.index, LeastRecentlyUsed())
    for _ in range(1500):
        if len(world.live) < 4 and rng.random() < 0.5:
            tokens = prompt(rng)
            world.add(b"r", list(tokens))
            lru.add(b"r", list(tokens))
        elif world.live:
            pick = rng.randrange(len(world.live))
            world.finish(world.live[pick])
            lru.finish(lru.live[pick])
        assert survivors_are_prefixes(world)
        assert world.index.oracle.runs == lru.index.oracle.runs
    assert world.order.pops["leaf"] > 1000 and not world.order.pops["other"]


def chain_of(pool: BlockPool, tokens: list[int], group: int = 0) -> list[int]:
    """Blocks that hold these tokens, referenced once."""
    prefix = Prefix(b"r", BLOCK, tokens)
    table = pool.allocate(len(tokens) // BLOCK)
    for block, holder in enumerate(table):
        pool.index.publish(group, prefix, block, BLOCK, holder)
    return table


def pool_of(num_blocks: int) -> BlockPool:
    index = RadixIndex(BLOCK)
    return BlockPool(num_blocks, index, LeafFirst(index))


def test_a_beginning_outlives_what_another_sequence_computed_after_it():
    """Two sequences computed the same at once, and one went on under what the other one holds."""
    pool = pool_of(7)
    first = chain_of(pool, [1] * 6)
    second = chain_of(pool, [1] * 9)
    assert [block in pool.index for block in second] == [False, False, True]
    pool.release(first)
    third = chain_of(pool, [2] * 3)
    pool.release(third)
    pool.release(second)
    assert list(pool.free_blocks())[-4:] == [third[0], second[2], first[1], first[0]]
    assert pool.allocate(6)[-4:] == [third[0], second[2], first[1], first[0]]


def test_where_each_free_block_is_followed_by_one_in_use_the_oldest_goes():
    pool = pool_of(7)
    table = chain_of(pool, [*range(15)], group=WINDOW)
    for slid in (0, 1, 2):
        pool.release([table[slid]])
    other = chain_of(pool, [9, 9, 9])
    pool.release(other)
    assert list(pool.free_blocks()) == [other[0], table[0], table[1], table[2]]
    assert pool.allocate(3) == [other[0], table[0], table[1]]
    pool.release(table[3:])
    assert list(pool.free_blocks()) == [table[4], table[3], table[2]]


def test_a_leaf_is_one_of_its_own_group_only():
    pool = pool_of(5)
    full = chain_of(pool, [1] * 6, group=FULL)
    window = chain_of(pool, [1] * 6, group=WINDOW)
    pool.release([full[0], window[1]])
    assert pool.allocate(1) == [window[1]], "a later block of the full group is in use"
    pool.release([window[0]])
    assert pool.allocate(1) == [window[0]], "nothing of its group follows it any more"


def test_a_block_that_got_a_follower_while_it_was_free_is_no_leaf():
    pool = pool_of(5)
    first = chain_of(pool, [1] * 3)
    pool.release(first)
    other = chain_of(pool, [2] * 3)
    pool.release(other)
    prefix = Prefix(b"r", BLOCK, [1] * 6)
    [follower] = pool.allocate(1)
    pool.index.publish(0, prefix, 1, BLOCK, follower)
    assert pool.allocate(1) != first
    assert pool.allocate(1) == other
    pool.forget(follower)
    assert pool.allocate(1) == first


def test_a_chain_waits_with_its_last_block_alone():
    index = RadixIndex(BLOCK)
    order = LeafFirst(index)
    pool = BlockPool(101, index, order)
    table = chain_of(pool, [1] * 100 * BLOCK)
    pool.release(table)
    assert [block for _, block in order._leaves] == [table[-1]]
    assert pool.allocate(100) == table[::-1]
    assert not order._leaves


def test_the_order_outlives_most_of_the_leaves_in_it():
    pool = pool_of(101)
    tables = [chain_of(pool, [token] * BLOCK) for token in range(100)]
    for table in tables:
        pool.release(table)
    used = random.Random(3).sample(range(100), 70)
    for token in used:
        pool.share(tables[token])
    left = [tables[token][0] for token in range(100) if token not in used]
    assert pool.allocate(30) == left


class Calls:
    """Counts the calls of functions, Python's own too."""

    def __enter__(self) -> Calls:
        self.count = 0
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: object, event: str, arg: object) -> None:
        self.count += event in ("call", "c_call")


def shapes(blocks: int) -> dict[str, list[list[int]]]:
    """Prompts of so many blocks together: one long one, many short ones, a comb, a full tree."""
    return {
        "chain": [[0] * BLOCK * blocks],
        "fan": [[i] * BLOCK for i in range(blocks)],
        "comb": [[0] * BLOCK * i + [1] * BLOCK for i in range(blocks // 2)],
        "tree": [[int(bit) for bit in f"{i:b}" for _ in range(BLOCK)] for i in range(blocks // 2)],
    }


@pytest.mark.parametrize("shape", shapes(2))
def test_giving_up_a_block_costs_no_more_calls_in_a_large_pool(shape: str):
    costs = []
    for blocks in (200, 2000 if shape in ("chain", "fan") else 600):
        pool = pool_of(blocks + 2)
        for tokens in shapes(blocks)[shape]:
            prefix = Prefix(b"r", BLOCK, tokens)
            hit = pool.index.held(0, prefix, len(tokens) // BLOCK, whole=True)
            pool.share(hit)
            new = pool.allocate(len(tokens) // BLOCK - len(hit))
            for block, holder in enumerate(new, len(hit)):
                pool.index.publish(0, prefix, block, BLOCK, holder)
            pool.release(hit + new)
        known = len(pool.index)
        with Calls() as calls:
            pool.allocate(pool.num_free)
        assert len(pool.index) == 0
        costs.append(calls.count / known)
    assert costs[1] < 1.2 * costs[0] < 80


def test_publishing_and_finding_cost_no_more_calls_in_a_long_prompt():
    index, prefix = RadixIndex(BLOCK), Prefix(b"r", BLOCK, [*range(4000 * BLOCK)])
    costs = []
    for blocks in (range(2000), range(2000, 4000)):
        with Calls() as calls:
            for block in blocks:
                assert index.publish(0, prefix, block, BLOCK, block + 1)
        costs.append(calls.count / len(blocks))
    assert costs[1] < 1.1 * costs[0] < 80
    with Calls() as calls:
        assert index.held(0, prefix, 4000, whole=True) == [*range(1, 4001)]
    assert calls.count < 40


def test_an_edge_is_cut_where_prompts_part_and_whole_again_when_one_is_gone():
    index = RadixIndex(BLOCK)
    long, other = Prefix(b"r", BLOCK, [1] * 30), Prefix(b"r", BLOCK, [1] * 12 + [2] * 5)
    for block in range(10):
        index.publish(0, long, block, BLOCK, block + 1)
    for block in (4, 5):
        index.publish(0, other, block, min(BLOCK, 17 - block * BLOCK), block + 20)
    [root] = index._roots.values()
    assert edges(root) == [4, [6], [1, [0]]]
    index.forget(25)
    index.forget(24)
    assert edges(root) == [10]
    assert index.held(0, long, 10, whole=True) == [*range(1, 11)]


def edges(node: Node) -> list[object]:
    """How many whole blocks each edge below is long."""
    if node.parent is None:
        [node] = node.children.values()
    return [node.blocks, *(edges(node.children[key]) for key in node.keys)]
