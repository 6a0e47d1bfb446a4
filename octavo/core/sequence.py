"""One stream of tokens being generated, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.base.output import FinishReason
from octavo.base.request import Request
from octavo.core.hash_chain import HashChain


@dataclass(slots=True, eq=False)
class Sequence:
    """Life of a sequence: 0 <= num_cached <= num_computed <= num_known; when scheduled,
    num_known - num_computed >= 1."""

    sequence_id: int
    request: Request
    order: tuple[int, int]  # (priority, arrival); smaller runs first, larger is preempted first
    chain: HashChain
    token_ids: list[int]  # known: prompt, then what was generated
    tables: list[list[int]] = field(default_factory=list)  # per KV group; empty when not running
    num_cached: int = 0
    num_computed: int = 0
    num_published: int = 0  # blocks whose content the index was told of
    num_sent: int = 0  # blocks of each table that the worker knows
    prompt_hit: int | None = None  # prompt tokens found by hash at first admission

    @property
    def num_known(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - len(self.request.prompt_token_ids)

    def check(self) -> None:
        counts = (self.num_cached, self.num_computed, self.num_known)
        assert 0 <= counts[0] <= counts[1] <= counts[2], counts

    def append(self, token_id: int) -> tuple[FinishReason | None, int | None]:
        """Add a generated token; why it ends the sequence, if it does, and the stop id."""
        self.token_ids.append(token_id)
        request, generated = self.request, self.num_generated
        if generated >= request.params.min_tokens:
            if token_id in request.eos_token_ids:
                return "stop", None
            if token_id in request.params.stop_ids:
                return "stop", token_id
        assert request.params.max_tokens is not None, "the door left it open"
        if generated >= request.params.max_tokens:
            return "length", None
        return None, None
