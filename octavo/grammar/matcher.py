"""What follows an answer through a grammar, token by token, whoever does it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.grammar.rules import Grammar

Mask = NDArray[np.int32]  # a bit for each token, the lowest first: it may come next


class Matcher(Protocol):
    """Where one answer is in its grammar."""

    def mask(self, into: Mask) -> None:
        """Which tokens may come next; ends of the answer are none of them.

        Raises:
            RequestError: the grammar is too complex to tell.
        """

    def consume(self, token_id: int) -> bool:
        """Take the next token; False, with nothing changed, where the grammar has no place for
        it."""

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""

    def copy(self) -> Matcher: ...

    @property
    def is_whole(self) -> bool:
        """The answer may end here."""


class Compiled(Protocol):
    """A grammar made ready for one vocabulary."""

    def matcher(self) -> Matcher:
        """At the beginning of an answer."""


class Backend(Protocol):
    """Makes grammars ready for one vocabulary. Threads may share it."""

    def compile(self, grammar: Grammar) -> Compiled:
        """Raises:
        RequestError: the grammar is too complex.
        """
