"""The hash index against a dictionary of token tuples; digests that must differ or be equal."""

from __future__ import annotations

import random

from octavo.core.block_pool import BlockPool
from octavo.core.prefix import HashChain, block_digest, root_digest
from octavo.core.prefix_index import HashIndex

BLOCK = 4


def test_matches_equal_those_of_a_dictionary_of_token_tuples():
    rng = random.Random(0)
    index, oracle = HashIndex(), {}
    free = list(range(1, 2000))
    for _ in range(10_000):
        tokens = tuple(rng.randrange(2) for _ in range(rng.randrange(0, 40)))
        full = len(tokens) // BLOCK
        digests = HashChain(b"r", BLOCK).upto(tokens, full)
        held = 0
        while held < full and tokens[: (held + 1) * BLOCK] in oracle:
            held += 1
        expected = [oracle[tokens[: (i + 1) * BLOCK]] for i in range(held)]
        assert index.match(0, digests) == expected
        for i in range(held, full):
            if not free:
                break
            prefix = tokens[: (i + 1) * BLOCK]
            fresh = prefix not in oracle
            block = free[-1]
            assert index.publish(0, digests[i], block) == fresh
            if fresh:
                oracle[prefix] = free.pop()
        if oracle and rng.random() < 0.5:
            gone = rng.choice(list(oracle))
            index.forget(oracle[gone])
            free.append(oracle.pop(gone))
        assert len(index) == len(oracle)


def test_a_chain_is_extended_not_recomputed():
    tokens = list(range(40))
    chain = HashChain(b"r", BLOCK)
    first = chain.upto(tokens, 3)
    assert chain.upto(tokens, 10)[:3] == first
    assert chain.upto(tokens, 10) == HashChain(b"r", BLOCK).upto(tokens, 10)
    assert chain.upto(tokens, 2) == first[:2]


def test_digests_differ_where_anything_does():
    parent, tokens = b"p", [1, 2, 3, 4]
    seen = {
        block_digest(parent, tokens),
        block_digest(b"q", tokens),
        block_digest(parent, [1, 2, 3, 5]),
        block_digest(parent, [1, 2, 4, 3]),
        block_digest(parent, [1, 2, 3]),
    }
    assert len(seen) == 5
    roots = [
        {"model": "a"},
        {"salt": "a"},
        {"model": "a", "salt": "b"},
        {"model": "ab", "salt": ""},
        {"model": "", "salt": "ab"},
    ]
    assert len({root_digest(extras) for extras in roots}) == len(roots)
    assert root_digest({"a": "1", "b": "2"}) == root_digest({"b": "2", "a": "1"})


def test_groups_of_one_pool_do_not_see_each_other():
    index = HashIndex()
    index.publish(0, b"d", 1)
    assert index.match(1, [b"d"]) == []
    index.publish(1, b"d", 2)
    assert (index.match(0, [b"d"]), index.match(1, [b"d"])) == ([1], [2])


def test_taking_a_free_block_out_of_the_middle():
    pool = BlockPool(6)
    pool.share([3])
    assert list(pool.free_blocks()) == [1, 2, 4, 5]
    pool.share([3])
    pool.release([3])
    assert pool.refs(3) == 1
    assert pool.num_free == 4
