"""Which blocks lie in the swap tier: names, sizes and the order of use. The bytes are elsewhere."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable


class SwapDirectory:
    """Names of pages, the least recently used first, of so many bytes in all at most."""

    def __init__(self, capacity: int, names: Iterable[tuple[str, int]] = ()) -> None:
        """`names`: what is there already, with the bytes of each."""
        self._capacity = capacity
        self._sizes = OrderedDict(names)
        self._bytes = sum(self._sizes.values())
        self._in_use: Counter[str] = Counter()  # being loaded

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def num_bytes(self) -> int:
        return self._bytes

    def put(self, name: str, size: int) -> bool:
        """Whether `name` is to be saved: it is not there yet and does not take more than all."""
        if name in self._sizes or size > self._capacity:
            return False
        self._sizes[name] = size
        self._bytes += size
        return True

    def shrink(self) -> list[str]:
        """Names to be discarded, so that the rest is not too much. None that is being loaded."""
        gone: list[str] = []
        while self._bytes > self._capacity:
            name = next((name for name in self._sizes if not self._in_use[name]), None)
            if name is None:
                break
            self.remove(name)
            gone.append(name)
        return gone

    def load(self, name: str) -> None:
        self._in_use[name] += 1
        self._sizes.move_to_end(name)

    def loaded(self, name: str, intact: bool) -> None:
        """A load has ended. What was not intact is there no more."""
        self._in_use[name] -= 1
        if not self._in_use[name]:
            del self._in_use[name]
        if not intact:
            self.remove(name)

    def remove(self, name: str) -> None:
        self._bytes -= self._sizes.pop(name, 0)

    def clear(self) -> list[str]:
        """Forget what is not being loaded; the names, to be discarded."""
        gone = [name for name in self._sizes if not self._in_use[name]]
        for name in gone:
            self.remove(name)
        return gone
