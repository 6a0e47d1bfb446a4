"""Rows to arrays against a plain dictionary; states under random play."""

from __future__ import annotations

import random

import numpy as np

from octavo.base.plan import NewSequence, Row, Sampled, StepPlan, StepResult
from octavo.base.sampling_params import SamplingParams
from octavo.sampling.rows import Drawn
from octavo.worker.batch import Wanted, build_batch, draft_rows
from octavo.worker.states import Growing, States
from octavo.worker.worker import _sampled

BLOCK = 4
PARAMS = SamplingParams(prompt_logprobs=5)


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
            new = [NewSequence(next_id, list(tokens), len(tokens), PARAMS, (3,), 2)]
            known[next_id], tables[next_id], computed[next_id] = tokens, [[], [], []], 0
            next_id += 1
        rows, drafts = [], []
        for s in known:
            start = computed[s]
            length = rng.randint(1, len(known[s]) - start)
            computed[s] += length
            kept = max(0, len(tables[s][0]) - rng.randrange(2))  # the last may have been copied
            wanted = -(-(computed[s] + 4) // BLOCK) - kept
            blocks = [[rng.randrange(1, 2**30) for _ in range(wanted)] for _ in range(2)]
            for table, more in zip(tables[s][:2], blocks, strict=True):
                table[kept:] = more
            tables[s][2] = [rng.randrange(1, 2**30), rng.randrange(1, 2**30)]  # of states
            blocks.append(tables[s][2])
            draws = (*range(1, rng.randint(1, 3)), 0) if computed[s] == len(known[s]) else ()
            follows = length == 1 and bool(draws) and rng.random() < 0.5
            guessed = rng.randint(0, 4) if draws else 0
            drafts.append([rng.randrange(999) for _ in range(guessed)])
            first = rng.randint(1, length) + start
            tells = (first, rng.randint(first + 1, start + length + 1))
            if tells[1] > len(known[s]) or rng.random() < 0.5:
                tells = (0, 0)
            told_from = start - follows * rng.randint(0, min(3, start))
            rows.append(Row(s, told_from, length, kept, blocks, draws, guessed, follows, tells))
        plan = StepPlan(step, new, rows, dropped)
        states.follow(plan)
        assert len(states) == len(known)
        for row, seen in zip(rows, draft_rows(plan, states), strict=True):
            assert seen.token_ids.tolist() == known[row.sequence_id][: seen.start + row.length]
            assert (seen.most, len(seen.tables)) == (row.drafts, 3)
        check(build_batch(plan, states, drafts, BLOCK, 3), plan, known, tables, drafts)
        drawn = [Sampled(r.sequence_id, c, [rng.randrange(999)]) for r in rows for c in r.draws]
        states.learn(StepResult(step, drawn))
        for d in drawn:
            if d.child == 0:  # the others are introduced as sequences of their own
                known[d.sequence_id] += d.token_ids


def check(batch, plan, known, tables, drafts):
    at = 0
    wanted = []
    for r, row in enumerate(plan.rows):
        tokens = [*known[row.sequence_id], *drafts[r]]
        start = len(known[row.sequence_id]) - 1 if row.follows else row.start
        next = start + row.length
        length = row.length + len(drafts[r])
        positions = list(range(start, start + length))
        span = slice(at, at + length)
        assert batch.attention.row_starts[r] == at
        assert batch.attention.context_lens[r] == start + length
        assert batch.positions[span].tolist() == positions
        assert batch.token_ids[span].tolist() == [tokens[p] for p in positions]
        assert batch.attention.tables[2].shape == (len(plan.rows), 2)
        assert batch.attention.tables[2][r].tolist() == tables[row.sequence_id][2]
        for g, table in enumerate(tables[row.sequence_id][:2]):
            assert batch.attention.tables[g][r, : len(table)].tolist() == table
            assert not batch.attention.tables[g][r, len(table) :].any()
            slots = [table[p // BLOCK] * BLOCK + p % BLOCK for p in positions]
            assert batch.attention.slots(g)[span].tolist() == slots
            assert batch.attention.slots(g).dtype == np.int64
        index = at - start
        told = [(row.sequence_id, None, p, index + p - 1, tokens) for p in range(*row.tells)]
        forks = [(row.sequence_id, c, next, index + next - 1, tokens) for c in row.draws[:-1]]
        own = [
            (row.sequence_id, c, p, index + p - 1, tokens)
            for c in row.draws[-1:]
            for p in range(next, next + len(drafts[r]) + 1)
        ]
        wanted += told + forks + own
        at += length
    assert sum(part.count for part in batch.wanted) == len(wanted)
    assert batch.chosen.tolist() == [chosen for *_, chosen, _ in wanted]
    of = [(part.sequence_id, part.child) for part in batch.wanted for _ in range(part.count)]
    assert of == [(s, child) for s, child, *_ in wanted]
    for row, (_, child, position, _, tokens) in zip(batch.sampling, wanted, strict=True):
        assert row.child == (child or 0)
        assert row.position == position
        assert row.known.tolist() == tokens[:position]
        assert row.given == (tokens[position] if child is None else None)
        assert row.logprobs == (5 if child is None else 2)
        assert row.stop_ids == (3,)


def test_drafts_are_taken_while_they_are_what_is_drawn():
    wanted = Wanted(7, 0, [4, 5, 6], 10, 4)
    drawn = [Drawn(4), Drawn(5), Drawn(9), Drawn(6)]
    assert _sampled(wanted, 0, drawn) == Sampled(7, 0, [4, 5, 9], drafts=3)
    assert _sampled(wanted, 0, [Drawn(8), *drawn[1:]]) == Sampled(7, 0, [8], drafts=3)
    all_right = [Drawn(4), Drawn(5), Drawn(6), Drawn(1)]
    assert _sampled(wanted, 0, all_right) == Sampled(7, 0, [4, 5, 6, 1], drafts=3)


def test_an_error_behind_drafts_waits_until_nothing_is_before_it():
    wanted = Wanted(7, 0, [4, 5], 10, 3)
    drawn = [Drawn(4), Drawn(-1, error="NaN"), Drawn(-1, error="NaN")]
    assert _sampled(wanted, 0, drawn) == Sampled(7, 0, [4], drafts=2)
    assert _sampled(wanted, 0, drawn[1:]) == Sampled(7, 0, [], error="NaN")
