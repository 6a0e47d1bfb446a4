"""A scheduler with a device made of Python: every slot remembers what was written to it."""

from __future__ import annotations

from collections import Counter

from octavo.base.kv import KVGroup, KVLayout, Pool
from octavo.base.output import Delta
from octavo.base.plan import NewSequence, Sampled, StepPlan, StepResult
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import SchedulerSettings
from octavo.core.kv_manager import KVManager
from octavo.core.scheduler import Scheduler

EOS = 0


def layout(num_blocks: int, block_size: int = 4, shape: str = "one") -> KVLayout:
    """`shape`: one group; two groups in one pool; or two groups with pages of different size.
    `num_blocks` are the usable blocks of each group."""
    full = KVGroup(name="full", layers=(0,), bytes_per_token=8)
    other = KVGroup(name="other", layers=(1,), bytes_per_token=8 if shape == "shared" else 6)
    if shape == "one":
        pools = (Pool(page_bytes=8 * block_size, num_blocks=num_blocks + 1, groups=(0,)),)
        return KVLayout(block_size=block_size, groups=(full,), pools=pools)
    if shape == "shared":
        pools = (Pool(page_bytes=8 * block_size, num_blocks=2 * num_blocks + 1, groups=(0, 1)),)
    else:
        pools = (
            Pool(page_bytes=8 * block_size, num_blocks=num_blocks + 1, groups=(0,)),
            Pool(page_bytes=6 * block_size, num_blocks=num_blocks + 1, groups=(1,)),
        )
    return KVLayout(block_size=block_size, groups=(full, other), pools=pools)


def request(name: str, prompt: list[int], max_tokens: int = 4, **options: object) -> Request:
    params = SamplingParams(max_tokens=max_tokens, seed=0)
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        params=params,
        eos_token_ids=(EOS,),
        **options,  # type: ignore[arg-type]
    )


class World:
    """Scheduler, manager and a device that checks every read against what should be there."""

    def __init__(
        self,
        kv: KVLayout,
        *,
        prefix_caching: bool = True,
        **settings: object,
    ) -> None:
        self.layout = kv
        self.settings = SchedulerSettings(**settings)  # type: ignore[arg-type]
        self.manager = KVManager(kv, b"root", prefix_caching)
        self.scheduler = Scheduler(self.settings, self.manager)
        self.known: dict[int, list[int]] = {}  # the worker's copy of each sequence's tokens
        self.tables: dict[int, list[list[int]]] = {}
        self.reached: dict[int, int] = {}  # tokens computed since the sequence was introduced
        self.memory: dict[tuple[int, int, int], tuple[object, ...]] = {}  # pool, block, offset
        self.salts: dict[int, str] = {}
        self.outputs: dict[str, list[int]] = {}
        self.finished: dict[str, str] = {}
        self.rows = 0

    def add(self, req: Request) -> None:
        self.scheduler.add(req)
        self.outputs[req.request_id] = []

    def plan(self) -> StepPlan:
        """Schedule and compute one step, checking what the device would see."""
        plan = self.scheduler.schedule()
        for gone in plan.dropped:
            del self.known[gone], self.tables[gone], self.reached[gone]
        for new in plan.new:
            self._introduce(new)
        self._write(plan)
        self._read(plan)
        assert plan.num_tokens <= self.settings.max_num_batched_tokens
        assert len(self.known) <= self.settings.max_num_seqs
        assert len({row.sequence_id for row in plan.rows}) == len(plan.rows)
        assert {row.sequence_id for row in plan.rows} == set(self.known), "a sequence stood still"
        self.rows += len(plan.rows)
        return plan

    def finish(self, plan: StepPlan, tokens: list[int]) -> list[Delta]:
        """Hand in drawn tokens, one for each sampling row in turn."""
        sampling = [row.sequence_id for row in plan.rows if row.samples]
        drawn = [Sampled(s, [tokens[i % len(tokens)]]) for i, s in enumerate(sampling)]
        for sampled in drawn:
            self.known[sampled.sequence_id] += sampled.token_ids
        return self._deliver(self.scheduler.update(plan, StepResult(plan.step, drawn)))

    def fail(self, plan: StepPlan) -> list[Delta]:
        return self._deliver(self.scheduler.update(plan, StepResult(plan.step, [], error="boom")))

    def step(self, tokens: list[int] | None = None) -> list[Delta]:
        return self.finish(self.plan(), tokens or [7])

    def drain(self, limit: int = 10_000) -> None:
        while self.scheduler.has_work:
            limit -= 1
            assert limit > 0, "the scheduler does not come to an end"
            self.step()

    def check(self) -> None:
        """free + held + null = all; references = occurrences; waste < 1 block."""
        live = [s for s in self.scheduler._live.values() if s.tables]
        for p, pool in enumerate(self.manager.pools):
            held = Counter(
                block
                for s in live
                for g, table in enumerate(s.tables)
                if self.layout.pool_of(g) == p
                for block in table
            )
            free = list(pool.free_blocks())
            assert len(set(free)) == len(free) == pool.num_free
            assert not set(free) & set(held)
            assert len(free) + len(held) + 1 == pool.num_blocks
            assert all(pool.refs(b) == held[b] for b in range(1, pool.num_blocks))
        for s in live:
            for table in s.tables:
                slots = len(table) * self.layout.block_size
                assert slots >= s.num_computed
                assert slots - s.num_known < self.layout.block_size, "a whole block wasted"

    def _introduce(self, new: NewSequence) -> None:
        assert new.sequence_id not in self.known
        self.known[new.sequence_id] = list(new.token_ids)
        self.tables[new.sequence_id] = [[] for _ in self.layout.groups]
        self.salts[new.sequence_id] = self.scheduler._live[new.sequence_id].request.cache_salt

    def _write(self, plan: StepPlan) -> None:
        size = self.layout.block_size
        for row in plan.rows:
            sid = row.sequence_id
            if sid in self.reached:
                assert row.start == self.reached[sid], "computed twice, or skipped"
            self.reached[sid] = row.start + row.length
            assert row.samples == (row.start + row.length == len(self.known[sid]))
            for g, blocks in enumerate(row.new_blocks):
                table = self.tables[sid][g]
                table += blocks
                for position in range(row.start, row.start + row.length):
                    slot = (self.layout.pool_of(g), table[position // size], position % size)
                    self.memory[slot] = self._content(sid, g, position)

    def _read(self, plan: StepPlan) -> None:
        size = self.layout.block_size
        for row in plan.rows:
            for g, table in enumerate(self.tables[row.sequence_id]):
                for position in range(row.start + row.length):
                    slot = (self.layout.pool_of(g), table[position // size], position % size)
                    assert self.memory[slot] == self._content(row.sequence_id, g, position)

    def _content(self, sid: int, group: int, position: int) -> tuple[object, ...]:
        return (group, self.salts[sid], tuple(self.known[sid][: position + 1]))

    def _deliver(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            assert delta.request_id not in self.finished, "a delta after the end"
            self.outputs[delta.request_id] += delta.token_ids
            if delta.finish_reason:
                self.finished[delta.request_id] = delta.finish_reason
        return deltas
