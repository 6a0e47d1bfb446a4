"""The recurrent states of sequences: which block each reads and writes, and which are kept.

    between steps   | state after all computed tokens |
    in a step       | state before the row | state after it |

A state that was written never changes. So a step that failed leaves what was read as it was; forks
and beams share a state until each has written its own; and a state that is kept to be found again
costs no copy, only that a row ends there.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.base.kv import KVLayout
from octavo.core.prefix_cache import PrefixCache
from octavo.core.sequence import Sequence


class StateBlocks:
    """Takes and gives back the blocks of all state groups; where there are none, does nothing."""

    def __init__(self, layout: KVLayout, cache: PrefixCache) -> None:
        self.most_sequences = layout.most_sequences
        self._cache = cache
        self.groups = {  # by number, its pool
            g: cache.pools[layout.pool_of(g)]
            for g, group in enumerate(layout.groups)
            if group.is_state
        }
        self._interval = layout.state_interval if self.groups and cache.enabled else None

    def until(self, sequence: Sequence, length: int) -> int:
        """How many of a sequence's next `length` tokens to compute, so that its row ends where a
        state is worth keeping: after every interval, and after the prompt; of a prompt that came
        before, for the next time, without its last token too, which is always computed."""
        if self._interval is None:
            return length
        start, prompt = sequence.num_computed, sequence.state.prompt_len
        end = start - start % self._interval + self._interval
        if start < prompt:
            end = min(end, prompt)
        if start < prompt - 1 and self._came_before(sequence):
            end = min(end, prompt - 1)
        return min(length, end - start)

    def extend(self, sequence: Sequence) -> None:
        """A block for the state after its next row.

        One is always free: each of the sequences that have blocks, `most_sequences` at most, holds
        two, those before their row one, and nobody else holds any.
        """
        for g, pool in self.groups.items():
            assert len(sequence.tables[g]) == 1, "the step before is not settled"
            sequence.tables[g].extend(pool.allocate(1))

    def settle(self, sequences: Iterable[Sequence]) -> None:
        """A step was computed: what it has written is its sequences' state."""
        for sequence in sequences if self.groups else ():
            for g, pool in self.groups.items():
                before = sequence.tables[g][:-1]
                pool.release(before)
                del sequence.tables[g][: len(before)]

    def publish_due(self, sequence: Sequence) -> None:
        """Tell the cache of a sequence's state, if its row has ended where one is worth keeping."""
        if self._interval is None:
            return
        computed, prompt = sequence.num_computed, sequence.state.prompt_len
        if computed in (prompt - 1, prompt) or computed % self._interval == 0:
            self.publish(sequence)

    def publish(self, sequence: Sequence) -> None:
        """Tell the cache of a sequence's state."""
        for g in self.groups if sequence.num_computed else ():
            state = sequence.tables[g][-1]
            self._cache.publish_state(g, sequence.prefix, sequence.num_computed, state)

    def _came_before(self, sequence: Sequence) -> bool:
        prompt = sequence.state.prompt_len
        return all(self._cache.has_state(g, sequence.prefix, prompt) for g in self.groups)
