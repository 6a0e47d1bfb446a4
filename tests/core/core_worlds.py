"""A scheduler with a device made of Python: every slot remembers what was written to it."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque

import msgspec

from octavo.base.kv import KVGroup, KVLayout
from octavo.base.output import Delta
from octavo.base.plan import (
    Move,
    NewSequence,
    Row,
    Sampled,
    StepPlan,
    StepResult,
    TokenLogprobs,
    Told,
)
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import SchedulerSettings
from octavo.core.block_pool import NULL_BLOCK
from octavo.core.kv_manager import KVManager
from octavo.core.scheduler import Scheduler
from octavo.core.swap import SwapDirectory
from octavo.models.memory import kv_bytes_for, kv_layout

EOS = 0
POISON = ("poison",)

STATE = 0  # in the place of a window

SHAPES = {  # groups: (bytes per token, or of a state; window)
    "one": [(8, None)],
    "shared": [(8, None), (8, None)],
    "split": [(8, None), (6, None)],
    "window": [(8, 6)],
    "mixed": [(8, None), (8, 6), (8, 9)],  # in one pool
    "mixed split": [(8, None), (6, 6)],
    "state": [(40, STATE)],
    "full state": [(8, None), (40, STATE)],
    "state full": [(40, STATE), (8, None), (40, STATE)],
    "window state": [(8, 6), (24, STATE)],
    "mixed state": [(8, None), (24, STATE), (8, 6)],
}


def layout(
    num_blocks: int,
    block_size: int = 4,
    shape: str = "one",
    chunk: int = 2**31,
    interval: int = 8,
    states: int = 8,
    running: int | None = None,
) -> KVLayout:
    """`num_blocks` are the usable blocks of a group with full attention; windows have what a
    sequence of these takes. `states`: usable ones of each state group, for `running` sequences;
    unless told, as many as there are pairs."""
    groups = tuple(_group(g, size, window) for g, (size, window) in enumerate(SHAPES[shape]))
    longest = num_blocks * block_size
    budget = kv_bytes_for(groups, block_size, longest, chunk=chunk)
    limits = {"chunk": chunk, "longest": longest, "state_interval": interval}
    kv = kv_layout(groups, block_size, budget, **limits)
    pools = (
        msgspec.structs.replace(pool, num_blocks=1 + states) if pool in kv.state_pools else pool
        for pool in kv.pools
    )
    if kv.state_pools:
        kv = msgspec.structs.replace(kv, most_sequences=running or states // 2)
    return msgspec.structs.replace(kv, pools=tuple(pools))


def _group(index: int, size: int, window: int | None) -> KVGroup:
    named = {"name": f"group {index}", "layers": (index,)}
    if window == STATE:
        return KVGroup(kind="state", state_bytes=size, **named)
    kind = "full" if window is None else "window"
    return KVGroup(kind=kind, bytes_per_token=size, window=window, **named)


def request(
    name: str,
    prompt: list[int],
    max_tokens: int = 4,
    params: dict[str, object] | None = None,
    **options: object,
) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        params=SamplingParams(max_tokens=max_tokens, seed=0, **(params or {})),  # type: ignore[arg-type]
        eos_token_ids=(EOS,),
        **options,  # type: ignore[arg-type]
    )


def generated(ahead: bool, drafts: int) -> int:
    """Tokens that a sequence may be planned to generate at once."""
    return (1 + drafts) * (1 + ahead)


def likeliest(tokens: list[int], count: int) -> TokenLogprobs:
    """What a model might think of the next token after `tokens`: of 0 to 7."""
    scores = {}
    for token in range(8):
        digest = hashlib.sha256(bytes([*tokens, token])).digest()
        scores[token] = -int.from_bytes(digest[:4], "little") / 2**31 - (3 if token == EOS else 0)
    top = sorted(scores.items(), key=lambda item: -item[1])[:count]
    return TokenLogprobs(top[0][0], top[0][1], 1, top)


class World:
    """Scheduler, manager and a device that checks every read against what should be there.

    `ahead`: each step is planned before the one before it has ended. `drafts`: that a row may have;
    the device takes some of these, and finds some of them right.
    """

    def __init__(
        self,
        kv: KVLayout,
        *,
        prefix_caching: bool = True,
        prefix_index: str = "hash",
        swap: int = 0,
        pace: float = 0.7,
        ahead: bool = False,
        drafts: int = 0,
        **settings: object,
    ) -> None:
        self.layout = kv
        self.settings = SchedulerSettings(**settings)  # type: ignore[arg-type]
        self.blanks: list[tuple[int, int]] = []  # blocks whose content nobody may see again
        self.manager = KVManager(
            kv,
            {"model": "m"},
            prefix_caching,
            prefix_index,
            SwapDirectory(swap) if swap else None,
            lambda pool, block: self.blanks.append((pool, block)),
            generated(ahead, drafts),
        )
        self.ahead = ahead
        self.flight: StepPlan | None = None  # the step under way
        self.drafted: dict[int, list[int]] = {}  # its sequences: what they will accept of drafts
        self.tried: dict[int, int] = {}  # and how many drafts they verify
        self.told: dict[str, list[int]] = {}  # prompt tokens whose logprobs were told
        self.wasted = 0  # tokens computed for sequences that had ended
        self.saved: dict[str, list[tuple[object, ...]]] = {}  # the swap tier
        self.loads: deque[Move] = deque()  # under way
        self.pace = pace  # how likely the next load ends in a step
        self.rng = random.Random(0)
        self.num_loaded = self.num_spoilt = 0
        self.scheduler = Scheduler(self.settings, self.manager, drafts, most_told=5)
        self.known: dict[int, list[int]] = {}  # the worker's copy of each sequence's tokens
        self.tables: dict[int, list[list[int]]] = {}
        self.reached: dict[int, int] = {}  # tokens computed since the sequence was introduced
        self.memory: dict[tuple[int, int, int], tuple[object, ...]] = {}  # pool, block, offset
        self.roots: dict[int, tuple[str, ...]] = {}
        self.keys: dict[int, dict[int, bytes]] = {}
        self.wanted: dict[int, int] = {}  # likeliest tokens to tell
        self.most: dict[int, int] = {}  # tokens to generate
        self.outputs: dict[str, dict[int, list[int]]] = {}  # by request and child
        self.finished: dict[str, dict[int, str]] = {}
        self.widths: dict[str, int] = {}
        self.ended: list[str] = []  # requests all of whose sequences have finished, in that order
        self.states_written = 0
        self.rows = 0
        self.tokens = 0
        self.copies = 0

    def add(self, req: Request) -> None:
        self.scheduler.add(req)
        self.outputs[req.request_id] = {}
        self.finished[req.request_id] = {}
        self.widths[req.request_id] = req.params.n

    def plan(self) -> StepPlan:
        """Schedule and compute one step, checking what the device would see."""
        plan = self.scheduler.schedule()
        self.compute(plan)
        return plan

    def compute(self, plan: StepPlan) -> None:
        for gone in plan.dropped:
            self.known.pop(gone, None)
            self.tables.pop(gone, None)
            self.reached.pop(gone, None)
        for new in plan.new:
            self._introduce(new)
        self._copy(plan)
        self._draft(plan)
        self._write(plan)
        self._read(plan)
        self._pass_on(plan)
        num_drafts = sum(row.drafts for row in plan.rows)
        assert plan.num_tokens + num_drafts <= self.settings.max_num_batched_tokens
        assert len(self.known) <= min(self.settings.max_num_seqs, self.layout.most_sequences)
        assert len({row.sequence_id for row in plan.rows}) == len(plan.rows)
        self.rows += len(plan.rows)
        self.tokens += plan.num_tokens
        self.copies += len(plan.copies)

    def finish(self, plan: StepPlan, tokens: list[int]) -> list[Delta]:
        """End a step and tell the scheduler."""
        return self._deliver(self.scheduler.update(plan, self.draw(plan, tokens)))

    def draw(self, plan: StepPlan, tokens: list[int]) -> StepResult:
        """Drawn tokens, one for each draw in turn; a beam tells what is likeliest."""
        drawn: list[Sampled] = []
        told = []
        for row in plan.rows:
            for child in row.draws:
                drawn.append(self._draw(row, child, tokens[len(drawn) % len(tokens)]))
            if row.draws:
                self.known[row.sequence_id] += drawn[-1].token_ids
                self.reached[row.sequence_id] = len(self.known[row.sequence_id]) - 1
            if row.tells[1]:
                prompt = self.known[row.sequence_id][slice(*row.tells)]
                logprobs = [TokenLogprobs(token, -1.0, 1, []) for token in prompt]
                told.append(Told(row.sequence_id, row.tells[0], logprobs))
        seconds = self.rng.random()
        return StepResult(plan.step, drawn, None, self._loaded(), told, seconds)

    def _loaded(self) -> list[tuple[str, bool]]:
        """Some of the loads end, a few of them spoilt."""
        ended = []
        while self.loads and self.rng.random() < self.pace:
            move = self.loads.popleft()
            intact = move.name in self.saved and self.rng.random() < 0.9
            if intact:
                for i, content in enumerate(self.saved[move.name]):
                    self.memory[move.pool, move.block, i] = content
            else:
                self.saved.pop(move.name, None)
            self.num_loaded += intact
            self.num_spoilt += not intact
            ended.append((move.name, intact))
        return ended

    def _draw(self, row: Row, child: int, token: int) -> Sampled:
        sid, width = row.sequence_id, self.wanted[row.sequence_id]
        if not width:
            accepted = self.drafted.get(sid, [])
            tried = self.tried.get(sid, 0)
            return Sampled(sid, child, [*accepted, token], drafts=tried)
        told = likeliest(self.known[sid], width)
        return Sampled(sid, child, [told.token_id], [told])

    def spoil(self, plan: StepPlan) -> None:
        """A step that fails may have written anything, or nothing, where it was to write."""
        for row in plan.rows:
            for g, group in enumerate(self.layout.groups):
                if group.is_state:
                    self.memory[self._state(row, g, 1)] = ("garbage",)
                    continue
                start = self._start(row)
                for position in range(start, start + row.length):
                    self.memory[self._slot(row.sequence_id, g, position)] = ("garbage",)

    def fail(self, plan: StepPlan) -> list[Delta]:
        result = StepResult(plan.step, [], error="boom", loaded=self._loaded())
        return self._deliver(self.scheduler.update(plan, result))

    def step(self, tokens: list[int] | None = None, fails: bool = False) -> list[Delta]:
        """One more step; with `ahead` the one before it ends, or fails."""
        tokens = tokens or [7]
        if not self.ahead:
            plan = self.plan()
            if not fails:
                return self.finish(plan, tokens)
            self.spoil(plan)
            return self.fail(plan)
        plan = self.scheduler.schedule()
        before, self.flight = self.flight, None
        deltas = []
        if before is not None and fails:
            self.spoil(before)
            deltas = self.fail(before)
            plan = msgspec.structs.replace(plan, new=[], rows=[])
            self.compute(plan)
        elif before is not None:
            result = self.draw(before, tokens)
            self.compute(plan)
            deltas = self._deliver(self.scheduler.update(before, result))
            for row in plan.rows:
                if row.follows and row.sequence_id not in self.scheduler._roster.live:
                    self.wasted += 1
        else:
            self.compute(plan)
        self.flight = plan
        return deltas

    def land(self) -> None:
        """End the step under way."""
        if self.flight is not None:
            plan, self.flight = self.flight, None
            self.finish(plan, [7])

    def drain(self, limit: int = 10_000) -> None:
        while self.scheduler.has_work:
            limit -= 1
            assert limit > 0, "the scheduler does not come to an end"
            self.step()
        self.land()

    def check(self) -> None:
        """free + held + null = all; references = occurrences; waste < 1 block; windows slide."""
        live = [s for s in self.scheduler._roster.live.values() if s.tables]
        assert len(live) <= self.layout.most_sequences
        for p, pool in enumerate(self.manager.pools):
            held = Counter(
                block
                for s in live
                for g, table in enumerate(s.tables)
                if self.layout.pool_of(g) == p
                for block in table
                if block != NULL_BLOCK
            )
            for loads in self.manager._moves._under_way.values():
                held.update(d.block for d in loads if self.layout.pool_of(d.group) == p)
            free = list(pool.free_blocks())
            assert len(set(free)) == len(free) == pool.num_free
            assert not set(free) & set(held)
            assert len(free) + len(held) + 1 == pool.num_blocks
            assert all(pool.refs(b) == held[b] for b in range(1, pool.num_blocks))
            if self.layout.pools[p] not in self.layout.state_pools:
                assert all(pool.index.tokens(b) <= self.layout.block_size for b in free)
        for s in live:
            for group, table in zip(self.layout.groups, s.tables, strict=True):
                if group.is_state:  # between steps one, and none before the first
                    assert len(table) == 1
                    assert (table[0] == NULL_BLOCK) == (s.num_computed == 0)
                    continue
                slots = len(table) * self.layout.block_size
                upto = s.num_expected - 1 if s.under_way else s.num_computed
                assert s.num_computed <= upto <= slots < upto + self.layout.block_size
                upto = max(upto, s.num_known)
                most = group.most_blocks(upto, self.layout.block_size, self.layout.chunk)
                assert len(table) - table.count(NULL_BLOCK) <= most

    def _introduce(self, new: NewSequence) -> None:
        assert new.sequence_id not in self.known
        sequence = self.scheduler._roster.live[new.sequence_id]
        self.known[new.sequence_id] = list(new.token_ids)
        self.tables[new.sequence_id] = [[] for _ in self.layout.groups]
        salt, owner = sequence.request.cache_salt, sequence.request.owner
        epoch = self.manager.cache.epoch
        keys, adapter = sequence.request.block_keys, sequence.request.adapter
        self.roots[new.sequence_id] = (salt, "" if salt else owner, epoch, adapter)
        self.keys[new.sequence_id] = keys
        self.most[new.sequence_id] = sequence.request.params.max_tokens
        beams = sequence.request.params.use_beam_search
        self.wanted[new.sequence_id] = (new.logprobs or 0) if beams else 0

    def _copy(self, plan: StepPlan) -> None:
        """All sources are read before any target changes; then what is no use is poisoned."""
        offsets = range(self.layout.block_size)
        for move in plan.saves:
            contents = [self.memory.get((move.pool, move.block, i), POISON) for i in offsets]
            assert POISON not in contents, "what nobody can use is kept"
            self.saved[move.name] = contents
        for name in plan.discards:
            assert name not in {move.name for move in (*self.loads, *plan.loads)}
            self.saved.pop(name, None)
        read = [
            [self.memory.get((c.pool, c.source, i), POISON) for i in offsets] for c in plan.copies
        ]
        for pool, block in self.blanks:
            for i in offsets:
                self.memory[pool, block, i] = POISON
        self.blanks.clear()
        targets = [(c.pool, c.target) for c in plan.copies]
        assert len(set(targets)) == len(targets)
        for copy, contents in zip(plan.copies, read, strict=True):
            for i, content in enumerate(contents):
                self.memory[copy.pool, copy.target, i] = content
        self.loads += plan.loads

    def _slot(self, sid: int, group: int, position: int) -> tuple[int, int, int]:
        block, offset = divmod(position, self.layout.block_size)
        held = self.tables[sid][group][block]
        assert held != NULL_BLOCK, "the null block is written or read"
        return self.layout.pool_of(group), held, offset

    def _start(self, row: Row) -> int:
        """Where a row begins: one that follows, at the newest token."""
        return len(self.known[row.sequence_id]) - 1 if row.follows else row.start

    def _draft(self, plan: StepPlan) -> None:
        """Which drafts there are, and which of them will be right."""
        self.drafted.clear()
        self.tried.clear()
        for row in plan.rows:
            if row.drafts:
                tried = self.rng.randint(0, row.drafts)
                right = self.rng.randint(0, tried)
                self.tried[row.sequence_id] = tried
                self.drafted[row.sequence_id] = [self.rng.choice([1, 2, 2, EOS])] * right

    def _write(self, plan: StepPlan) -> None:
        written = {(m.pool, m.block, i) for m in self.loads for i in range(self.layout.block_size)}
        for row in plan.rows:
            sid, start = row.sequence_id, self._start(row)
            if sid in self.reached:
                assert start == self.reached[sid], "computed twice, or skipped"
            assert start >= row.start
            self.reached[sid] = end = start + row.length
            draws = end == len(self.known[sid]) and self.most[sid] > 0
            assert bool(row.draws) == draws
            for g, blocks in enumerate(row.new_blocks):
                table = self.tables[sid][g]
                if self.layout.groups[g].is_state:
                    table[:] = blocks
                    continue
                assert len(table) >= row.kept
                table[row.kept :] = blocks
                for position in range(start, end + self.tried.get(sid, 0)):
                    slot = self._slot(sid, g, position)
                    assert slot not in written, "two rows write to one slot"
                    written.add(slot)
                    self.memory[slot] = self._content(sid, g, position)

    def _read(self, plan: StepPlan) -> None:
        for row in plan.rows:
            for g, group in enumerate(self.layout.groups):
                if group.is_state:
                    continue
                start = self._start(row)
                for position in range(group.first_seen(start), start + row.length):
                    held = self.memory[self._slot(row.sequence_id, g, position)]
                    assert held == self._content(row.sequence_id, g, position)

    def _pass_on(self, plan: StepPlan) -> None:
        """Every row's state: all are read before any is written, and none is read that is."""
        groups = [g for g, group in enumerate(self.layout.groups) if group.is_state]
        moved = [(row, g) for row in plan.rows for g in groups]
        sources = {self._state(row, g, 0) for row, g in moved}
        targets = [self._state(row, g, 1) for row, g in moved]
        assert len(set(targets)) == len(targets)
        assert not sources & set(targets)
        for row, g in moved:
            source = self._state(row, g, 0)
            assert (source[1] == NULL_BLOCK) == (row.start == 0)
            if row.start:
                assert self.memory[source] == self._content(row.sequence_id, g, row.start - 1)
        for row, g in moved:
            target = self._state(row, g, 1)
            assert target[1] != NULL_BLOCK
            last = row.start + row.length - 1
            self.memory[target] = self._content(row.sequence_id, g, last)
            self.states_written += 1

    def _state(self, row: Row, group: int, which: int) -> tuple[int, int, int]:
        """Where the state lies that a row reads (0) or writes (1)."""
        table = self.tables[row.sequence_id][group]
        assert len(table) == 2
        return self.layout.pool_of(group), table[which], 0

    def _content(self, sid: int, group: int, position: int) -> tuple[object, ...]:
        blocks = range(position // self.layout.block_size + 1)
        keys = tuple(self.keys[sid].get(block) for block in blocks)
        tokens = [*self.known[sid], *self.drafted.get(sid, [])][: position + 1]
        tokens += ["wrong draft"] * (position + 1 - len(tokens))
        return (group, self.roots[sid], keys, tuple(tokens))

    def _deliver(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            for position in delta.prompt_logprobs or ():
                self.told.setdefault(delta.request_id, []).append(position.token_id)
            ended = self.finished[delta.request_id]
            assert delta.index not in ended, "a delta after the end"
            if delta.token_ids or delta.finish_reason:  # else it tells of the prompt
                self.outputs[delta.request_id].setdefault(delta.index, []).extend(delta.token_ids)
            if delta.finish_reason:
                ended[delta.index] = delta.finish_reason
                if len(ended) == self.widths[delta.request_id]:
                    self.ended.append(delta.request_id)
        return deltas
