"""Which sequences there are: who runs, who waits, and who is gone."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import count

from octavo.base.output import Delta, FinishReason
from octavo.base.request import Request
from octavo.core.beam_search import BeamSearch
from octavo.core.kv_manager import KVManager
from octavo.core.policies import QueueOrder
from octavo.core.prefix import Prefix
from octavo.core.queue import WaitingQueue
from octavo.core.repetition import Repetitions
from octavo.core.sequence import RequestState, Sequence


class Roster:
    """Sequences of all requests. `running` is kept in order of (priority, arrival, child).

    Args:
        manager: gives and takes their blocks.
        order: ranks requests.
        most: sequences that may run at once.
        reserve: whether every sequence claims memory for all that it may generate.
    """

    def __init__(self, manager: KVManager, order: QueueOrder, most: int, reserve: bool) -> None:
        self.live: dict[int, Sequence] = {}
        self.states: dict[str, RequestState] = {}  # by request id
        self.waiting = WaitingQueue()
        self.running: list[Sequence] = []
        self._manager = manager
        self._order = order
        self._most = most
        self._reserve = reserve
        self._dropped: list[int] = []  # sequences the worker shall forget
        self._arrivals = count()
        self._numbers = count()

    def add(self, request: Request) -> None:
        """Its first sequence waits; the request's id must not be in use."""
        assert request.request_id not in self.states, f"{request.request_id} is here already"
        state = RequestState(
            request=request,
            number=next(self._arrivals),
            search=BeamSearch(request) if request.params.use_beam_search else None,
            unborn=request.params.n - 1,
        )
        self.states[request.request_id] = state
        prefix = self._manager.cache.prefix(request, list(request.prompt_token_ids))
        self.waiting.push(self._sequence(state, 0, prefix))

    def fork(self, parent: Sequence, child: int) -> Sequence:
        """A sequence that shares all blocks of its parent; where too many run, it waits."""
        forked = self._sequence(parent.state, child, parent.prefix.fork(list(parent.token_ids)))
        forked.reserves = parent.reserves
        forked.state.unborn = max(0, forked.state.unborn - 1)
        if len(self.running) < self._most or parent.state.search:
            self._manager.fork(parent, forked)
            self.run(forked)
        else:
            self.waiting.push(forked)
        return forked

    def run(self, sequence: Sequence) -> None:
        bisect.insort(self.running, sequence, key=lambda s: s.order)

    def suspend(self, sequence: Sequence, written: bool = True) -> None:
        """Take its blocks; it waits to be computed again, as far as it cannot be found. What rows
        under way draw for it is drawn again, the same: they know it by another id."""
        self._stop(sequence, written)
        sequence.likeliest = None
        sequence.under_way.clear()
        del self.live[sequence.sequence_id]
        sequence.sequence_id = next(self._numbers)
        self.live[sequence.sequence_id] = sequence
        self.waiting.push(sequence)

    def finish(self, sequence: Sequence, written: bool = True) -> None:
        """Forget a sequence. `written`: what it has computed may be found by others."""
        state = sequence.state
        del self.live[sequence.sequence_id]
        if state.alive.get(sequence.child) is sequence:  # else another beam has its place
            del state.alive[sequence.child]
        if not state.alive:
            del self.states[state.request.request_id]
        if not self.waiting.remove(sequence):
            self._stop(sequence, written)

    def end(
        self, sequence: Sequence, reason: FinishReason, why: str | None = None, written: bool = True
    ) -> Iterator[Delta]:
        """Finish a sequence before its time; in a beam search or before it is forked, the whole
        request."""
        state = sequence.state
        whole = state.search is not None or state.unborn > 0
        for one in list(state.alive.values()) if whole else [sequence]:
            self.finish(one, written)
        children = range(state.request.params.n) if whole else [sequence.child]
        for child in children:
            yield Delta(state.request.request_id, [], index=child, finish_reason=reason, error=why)

    def take_dropped(self) -> list[int]:
        """Sequences that lost their blocks since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _stop(self, sequence: Sequence, written: bool) -> None:
        self.running.remove(sequence)
        self._manager.free(sequence, written)
        self._dropped.append(sequence.sequence_id)

    def _sequence(self, state: RequestState, child: int, prefix: Prefix) -> Sequence:
        wanted = state.request.params.repetition_detection
        output = prefix.token_ids[state.prompt_len :]
        sequence = Sequence(
            sequence_id=next(self._numbers),
            state=state,
            child=child,
            order=(self._order.rank(state.request), state.number, child),
            prefix=prefix,
            token_ids=prefix.token_ids,
            reserves=self._reserve,
            repetitions=Repetitions(wanted, output) if wanted else None,
        )
        self.live[sequence.sequence_id] = sequence
        state.alive[child] = sequence
        return sequence
