"""Which block holds the recurrent state after which tokens.

A state sums up all tokens before it, so it is of use to exactly those: it is found under the digest
of their full blocks and the tokens behind these, not at any place in between.
"""

from __future__ import annotations

from collections.abc import Container

from octavo.core.prefix import TOKEN, Prefix

_Name = tuple[bytes, bytes]  # digest of all full blocks, the tokens behind them


class StateIndex:
    """Tokens -> block, for one state group. The first block published for a name keeps it."""

    def __init__(self) -> None:
        self._tails: dict[bytes, dict[bytes, int]] = {}  # by digest of the full blocks: by tail
        self._names: dict[int, _Name] = {}  # by block

    def __contains__(self, block: int) -> bool:
        return block in self._names

    def __len__(self) -> int:
        return len(self._names)

    def publish(self, prefix: Prefix, tokens: int, holder: int) -> bool:
        """`holder` is the state after the first `tokens` ones. False, with nothing changed, where
        another one is known, or where a state cannot be told from others: behind the first tokens
        of a block that has a key, which is found whole or not at all."""
        full, inside = divmod(tokens, prefix.block_size)
        if inside and full in prefix.keys:
            return False
        if self.holds(prefix, tokens):
            return False
        name = prefix.digest(full), prefix.run(full, inside)
        assert holder not in self._names, f"state {holder} is of other tokens"
        self._tails.setdefault(name[0], {})[name[1]] = holder
        self._names[holder] = name
        return True

    def holds(self, prefix: Prefix, tokens: int) -> bool:
        """Whether the state after exactly the first `tokens` ones is known."""
        full, inside = divmod(tokens, prefix.block_size)
        return prefix.run(full, inside) in self._tails.get(prefix.digest(full), ())

    def longest(self, prefix: Prefix, most: int, besides: Container[int] = ()) -> tuple[int, int]:
        """Tokens of the longest prefix whose state is known, `most` at most, and its block; (0, 0)
        for none. Blocks in `besides` do not count. One lookup for each block of the prefix."""
        size = prefix.block_size
        for full in range(most // size, -1, -1):
            tails = self._tails.get(prefix.digest(full))
            if not tails:
                continue
            run = prefix.run(full, 0 if full in prefix.keys else min(size - 1, most - full * size))
            for end in range(len(run), -1, -TOKEN):
                holder = tails.get(run[:end], 0)
                if holder and holder not in besides:
                    return full * size + end // TOKEN, holder
        return 0, 0

    def forget(self, holder: int) -> None:
        """Remove what is known of a block; nothing happens if nothing is."""
        name = self._names.pop(holder, None)
        if name is None:
            return
        tails = self._tails[name[0]]
        del tails[name[1]]
        if not tails:
            del self._tails[name[0]]
