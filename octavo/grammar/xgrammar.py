"""Matchers of the XGrammar library: pushdown automata whose masks are computed beforehand.

It comes with the extra `xgrammar`, and with torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octavo.base.errors import ConfigError, RequestError
from octavo.grammar.ebnf_text import ebnf_text
from octavo.grammar.matcher import Mask
from octavo.grammar.rules import Grammar
from octavo.grammar.vocabulary import Vocabulary


class XGrammar:
    """Makes grammars ready for one vocabulary. Threads may share it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises ConfigError where the library is not installed."""
        try:
            import xgrammar  # with it comes torch
        except ImportError as error:
            raise ConfigError("xgrammar is not there: pip install octavo[xgrammar]") from error
        self._vocabulary = vocabulary
        tokens = [
            _unspeakable(i) if i in vocabulary.special_ids else token
            for i, token in enumerate(vocabulary.tokens)
        ]
        info = xgrammar.TokenizerInfo(tokens, stop_token_ids=list(vocabulary.eos_ids))
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._matcher = xgrammar.GrammarMatcher

    def compile(self, grammar: Grammar) -> XGrammarGrammar:
        """Lets other threads run meanwhile.

        Raises:
            RequestError: the grammar is too complex.
        """
        text = ebnf_text(grammar)
        try:
            compiled = self._compiler.compile_grammar(text)
        except RuntimeError as error:
            first = str(error).split("\n", 1)[0]
            raise RequestError(f"structured_outputs: {first}", "structured_outputs") from error
        return XGrammarGrammar(lambda: self._matcher(compiled), self._vocabulary)


class XGrammarGrammar:
    def __init__(self, new: Callable[[], Any], vocabulary: Vocabulary) -> None:
        self._new = new
        self._vocabulary = vocabulary

    def matcher(self) -> XGrammarMatcher:
        return XGrammarMatcher(self._new(), self._vocabulary)


class XGrammarMatcher:
    def __init__(self, matcher: Any, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    @property
    def is_whole(self) -> bool:
        return bool(self._matcher.is_completed())

    def mask(self, into: Mask) -> None:
        assert into.dtype == np.int32 and len(into) == self._vocabulary.words
        self._matcher.fill_next_token_bitmask(into.reshape(1, -1))

    def consume(self, token_id: int) -> bool:
        return bool(self._matcher.accept_token(token_id))

    def rollback(self, count: int) -> None:
        self._matcher.rollback(count)

    def copy(self) -> XGrammarMatcher:
        return XGrammarMatcher(self._matcher.fork(), self._vocabulary)


def _unspeakable(token_id: int) -> bytes:
    """A spelling that no text has, as it is not UTF-8: a special token is met by its id only."""
    return b"\xff" + str(token_id).encode()
