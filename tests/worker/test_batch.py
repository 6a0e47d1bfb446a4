"""Rows to arrays against a plain dictionary; states under random play."""

from __future__ import annotations

import random

import numpy as np

from octavo.base.plan import NewSequence, Row, Sampled, StepPlan, StepResult
from octavo.base.sampling_params import SamplingParams
from octavo.worker.batch import build_batch
from octavo.worker.states import Growing, States

BLOCK = 4


def test_growing_equals_a_list():
    rng = random.Random(0)
    grown, plain = Growing([1, 2]), [1, 2]
    for _ in range(200):
        more = [rng.randrange(100) for _ in range(rng.randrange(0, 9))]
        grown.extend(more)
        plain += more
        assert grown.values.tolist() == plain
        assert len(grown) == len(plain)


def test_arrays_equal_a_plain_account_of_rows():
    rng = random.Random(1)
    states = States(num_groups=3, replaced=[2])
    known: dict[int, list[int]] = {}
    tables: dict[int, list[list[int]]] = {}
    computed: dict[int, int] = {}
    next_id = 0
    for step in range(300):
        dropped = [s for s in list(known) if rng.random() < 0.1]
        for gone in dropped:
            del known[gone], tables[gone], computed[gone]
        new = []
        if len(known) < 5:
            tokens = [rng.randrange(999) for _ in range(rng.randint(1, 20))]
            new = [NewSequence(next_id, list(tokens), len(tokens), SamplingParams(), (3,), 2)]
            known[next_id], tables[next_id], computed[next_id] = tokens, [[], [], []], 0
            next_id += 1
        rows = []
        for s in known:
            start = computed[s]
            length = rng.randint(1, len(known[s]) - start)
            computed[s] += length
            kept = max(0, len(tables[s][0]) - rng.randrange(2))  # the last may have been copied
            wanted = -(-computed[s] // BLOCK) - kept
            blocks = [[rng.randrange(1, 2**30) for _ in range(wanted)] for _ in range(2)]
            for table, more in zip(tables[s][:2], blocks, strict=True):
                table[kept:] = more
            tables[s][2] = [rng.randrange(1, 2**30), rng.randrange(1, 2**30)]  # of states
            blocks.append(tables[s][2])
            draws = (*range(1, rng.randint(1, 3)), 0) if computed[s] == len(known[s]) else ()
            rows.append(Row(s, start, length, kept, blocks, draws))
        plan = StepPlan(step, new, rows, dropped)
        states.follow(plan)
        assert len(states) == len(known)
        check(build_batch(plan, states, BLOCK, 3), plan, known, tables)
        drawn = [Sampled(r.sequence_id, c, [rng.randrange(999)]) for r in rows for c in r.draws]
        states.learn(StepResult(step, drawn))
        for d in drawn:
            if d.child == 0:  # the others are introduced as sequences of their own
                known[d.sequence_id] += d.token_ids


def check(batch, plan, known, tables):
    at = 0
    sampling = []
    for r, row in enumerate(plan.rows):
        positions = list(range(row.start, row.start + row.length))
        span = slice(at, at + row.length)
        assert batch.attention.row_starts[r] == at
        assert batch.attention.context_lens[r] == row.start + row.length
        assert batch.positions[span].tolist() == positions
        assert batch.token_ids[span].tolist() == [known[row.sequence_id][p] for p in positions]
        assert batch.attention.tables[2].shape == (len(plan.rows), 2)
        assert batch.attention.tables[2][r].tolist() == tables[row.sequence_id][2]
        for g, table in enumerate(tables[row.sequence_id][:2]):
            assert batch.attention.tables[g][r, : len(table)].tolist() == table
            assert not batch.attention.tables[g][r, len(table) :].any()
            slots = [table[p // BLOCK] * BLOCK + p % BLOCK for p in positions]
            assert batch.attention.slots(g)[span].tolist() == slots
            assert batch.attention.slots(g).dtype == np.int64
        at += row.length
        sampling += [(row.sequence_id, child, at - 1) for child in row.draws]
    assert batch.drawn_for == [(s, child) for s, child, _ in sampling]
    assert batch.chosen.tolist() == [last for _, _, last in sampling]
    for row, (s, child, _) in zip(batch.sampling, sampling, strict=True):
        assert (row.child, row.logprobs) == (child, 2)
        assert row.token_ids.tolist() == known[s]
        assert row.position == len(known[s])
        assert row.stop_ids == (3,)
