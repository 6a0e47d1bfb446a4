"""What every prefix index must answer, by dictionaries of token tuples; a check of each answer."""

from __future__ import annotations

from collections.abc import Container, Iterator

from octavo.core.prefix import Prefix
from octavo.core.prefix_index import PrefixIndex

Tokens = tuple[int, ...]
Place = tuple[int, bytes, Tokens]  # group, root, tokens of all blocks before


class Oracle:
    """A `PrefixIndex` that looks at everything it knows."""

    def __init__(self, block_size: int) -> None:
        self.size = block_size
        self.places: dict[int, Place] = {}  # of each holder
        self.runs: dict[int, Tokens] = {}  # of each holder
        self.under: dict[Place, set[int]] = {}

    def __contains__(self, block: int) -> bool:
        return block in self.runs

    def __len__(self) -> int:
        return len(self.runs)

    def tokens(self, block: int) -> int:
        return len(self.runs.get(block, ()))

    def held(self, group: int, prefix: Prefix, count: int, whole: bool) -> list[int]:
        found = []
        for block in range(count):
            run = self._run(prefix, block, self.size)
            holders = [h for h in self.after(group, prefix, block) if self.runs[h] == run]
            if whole and not holders:
                break
            found.append(holders[0] if holders else 0)
        return found

    def longest_run(
        self, group: int, prefix: Prefix, block: int, most: int, besides: Container[int] = ()
    ) -> tuple[int, int]:
        wanted = self._run(prefix, block, most)
        near = [h for h in self.after(group, prefix, block) if h not in besides]
        best = max(near, key=lambda h: common(self.runs[h], wanted), default=0)
        shared = common(self.runs[best], wanted) if best else 0
        return best, shared

    def publish(self, group: int, prefix: Prefix, block: int, length: int, holder: int) -> bool:
        run = self._run(prefix, block, length)
        if any(self.runs[h][:length] == run for h in self.after(group, prefix, block)):
            return False
        self.forget(holder)
        place = self._place(group, prefix, block)
        self.places[holder], self.runs[holder] = place, run
        self.under.setdefault(place, set()).add(holder)
        return True

    def forget(self, holder: int) -> None:
        if holder in self.runs:
            self.under[self.places.pop(holder)].remove(holder)
            del self.runs[holder]

    def after(self, group: int, prefix: Prefix, block: int) -> set[int]:
        return self.under.get(self._place(group, prefix, block), set())

    def before(self, block: int) -> Iterator[int]:
        """The whole blocks of the same group that lie before this one."""
        group, root, tokens = self.places[block]
        for end in range(self.size, len(tokens) + 1, self.size):
            place = group, root, tokens[: end - self.size]
            for other in self.under.get(place, ()):
                if self.runs[other] == tokens[end - self.size : end]:
                    yield other

    def leaves(self) -> set[int]:
        """The blocks that no other one of their group follows."""
        return set(self.runs) - {before for block in self.runs for before in self.before(block)}

    def _place(self, group: int, prefix: Prefix, block: int) -> Place:
        return group, prefix.digest(0), tuple(prefix.token_ids[: block * self.size])

    def _run(self, prefix: Prefix, block: int, length: int) -> Tokens:
        start = block * self.size
        return tuple(prefix.token_ids[start : start + length])


class Checked:
    """A `PrefixIndex` that asks others, and the oracle whether they are right."""

    def __init__(self, block_size: int, *indexes: PrefixIndex) -> None:
        self.indexes, self.oracle = indexes, Oracle(block_size)

    def __contains__(self, block: int) -> bool:
        known = block in self.oracle
        assert all((block in index) == known for index in self.indexes)
        return known

    def __len__(self) -> int:
        assert all(len(index) == len(self.oracle) for index in self.indexes)
        return len(self.oracle)

    def tokens(self, block: int) -> int:
        tokens = self.oracle.tokens(block)
        assert all(index.tokens(block) == tokens for index in self.indexes)
        return tokens

    def held(self, group: int, prefix: Prefix, count: int, whole: bool) -> list[int]:
        found = self.oracle.held(group, prefix, count, whole)
        assert all(index.held(group, prefix, count, whole) == found for index in self.indexes)
        return found

    def longest_run(
        self, group: int, prefix: Prefix, block: int, most: int, besides: Container[int] = ()
    ) -> tuple[int, int]:
        """Another one than the oracle's will do if it shares as much."""
        best = self.oracle.longest_run(group, prefix, block, most, besides)
        wanted = tuple(prefix.token_ids[block * prefix.block_size :][:most])
        for index in self.indexes:
            holder, shared = index.longest_run(group, prefix, block, most, besides)
            assert shared == best[1]
            assert (holder == 0) == (best[0] == 0)
            if holder:
                assert holder in self.oracle.after(group, prefix, block)
                assert holder not in besides
                assert common(self.oracle.runs[holder], wanted) == shared
        return best

    def publish(self, group: int, prefix: Prefix, block: int, length: int, holder: int) -> bool:
        done = self.oracle.publish(group, prefix, block, length, holder)
        for index in self.indexes:
            assert index.publish(group, prefix, block, length, holder) == done
            assert index.tokens(holder) == self.oracle.tokens(holder)
        return done

    def forget(self, holder: int) -> None:
        self.oracle.forget(holder)
        for index in self.indexes:
            index.forget(holder)
            assert index.tokens(holder) == 0


def common(one: Tokens, other: Tokens) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length
