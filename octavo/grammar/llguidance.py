"""Matchers of the llguidance library: an Earley parser over lexemes."""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from octavo.base.errors import RequestError
from octavo.grammar.lark_text import lark_text
from octavo.grammar.matcher import Mask
from octavo.grammar.rules import Grammar
from octavo.grammar.spelling import spelled
from octavo.grammar.vocabulary import Vocabulary


class LLGuidance:
    """Makes grammars ready for one vocabulary. Threads may share it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokenizer = LLTokenizer(_Tokens(vocabulary))  # type: ignore[arg-type]

    def compile(self, grammar: Grammar) -> LLGuidanceGrammar:
        """Lets other threads run meanwhile.

        Raises:
            RequestError: the grammar is too complex.
        """
        text = LLMatcher.grammar_from_lark(lark_text(grammar))
        matcher = LLMatcher(self._tokenizer, text, log_level=0)
        _check(matcher)
        return LLGuidanceGrammar(matcher, self._vocabulary)


class LLGuidanceGrammar:
    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    def matcher(self) -> LLGuidanceMatcher:
        return LLGuidanceMatcher(self._matcher.deep_copy(), self._vocabulary)


class LLGuidanceMatcher:
    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    @property
    def is_whole(self) -> bool:
        return self._matcher.is_accepting()

    def mask(self, into: Mask) -> None:
        assert into.dtype == np.int32 and into.flags.c_contiguous and len(into) == self._words
        self._matcher.unsafe_compute_mask_ptr(into.ctypes.data, into.nbytes)
        _check(self._matcher)
        whole = self.is_whole
        bits = into.view(np.uint32)
        for token_id in self._vocabulary.eos_ids:
            bit = np.uint32(1 << token_id % 32)
            bits[token_id // 32] = bits[token_id // 32] & ~bit | bit * whole

    def consume(self, token_id: int) -> bool:
        return self._matcher.try_consume_tokens([token_id]) == 1

    def rollback(self, count: int) -> None:
        self._matcher.rollback(count)
        _check(self._matcher)

    def copy(self) -> LLGuidanceMatcher:
        return LLGuidanceMatcher(self._matcher.deep_copy(), self._vocabulary)

    @property
    def _words(self) -> int:
        return self._vocabulary.words


class _Tokens:
    """A vocabulary as the library asks for it."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_ids[0]
        self.tokens = list(vocabulary.tokens)
        self.special_token_ids = sorted(vocabulary.special_ids)
        self._vocabulary = vocabulary

    def __call__(self, text: str) -> list[int]:
        """Only ever asked for hints of what a forced text is as tokens."""
        return spelled(text.encode(), self._vocabulary) or []


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        first = matcher.get_error().split("\n", 1)[0]
        raise RequestError(f"structured_outputs: {first}", "structured_outputs")
