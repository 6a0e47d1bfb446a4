"""Structures that requests ask for, made ready aside and kept by what they say."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from hashlib import sha256

import msgspec

from octavo.base.sampling_params import SamplingParams
from octavo.base.structured import StructuredOutputsParams, Thinking
from octavo.grammar.compile import compile_structure
from octavo.grammar.completion import Completion
from octavo.grammar.guide import Guide, Structure
from octavo.grammar.matcher import Backend
from octavo.grammar.thinking import ThinkingBudget
from octavo.grammar.vocabulary import Vocabulary

MOST_KEPT = 64  # structures; what their lexers have met takes memory


class Maker:
    """From what a request says to what its answers are followed with. Threads may share it."""

    def __init__(self, vocabulary: Vocabulary, backend: str = "llguidance") -> None:
        """Raises ConfigError where the backend is not installed."""
        self.vocabulary = vocabulary
        self._backend = _load(backend, vocabulary)

    def structure(self, wanted: StructuredOutputsParams, thinking: Thinking | None) -> Structure:
        """Raises:
        RequestError: it is wrong, or too complex.
        """
        grammar = compile_structure(wanted, thinking, self.vocabulary.named.get)
        closes = Completion(grammar, self.vocabulary) if wanted.close_in_time else None
        return Structure(self._backend.compile(grammar), closes)


class Grammars:
    """Makes structures in a thread of its own, so that nobody waits who needs none.

    Args:
        load: gives the vocabulary, once the first structure is asked for.
    """

    def __init__(self, load: Callable[[], Vocabulary], backend: str) -> None:
        self._load = load
        self._backend = backend
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._made: OrderedDict[bytes, Future[Structure]] = OrderedDict()

    def begin(self, params: SamplingParams) -> Future[Structure] | None:
        """What a request must wait for; None where there is nothing."""
        wanted, thinking = params.structured_outputs, params.thinking
        if wanted is None:
            return None
        key = digest(wanted, thinking)
        if key not in self._made:
            self._made[key] = self._thread.submit(lambda: self._maker.structure(wanted, thinking))
        self._made.move_to_end(key)
        while len(self._made) > MOST_KEPT:
            self._made.popitem(last=False)
        return self._made[key]

    def guide(self, params: SamplingParams) -> Guide | None:
        """Who follows an answer from its first token on; None where it may be anything."""
        thinking = params.thinking
        budget = None
        if thinking is not None and thinking.budget is not None and thinking.state != "closed":
            budget = ThinkingBudget(thinking, self._maker.vocabulary)
        making = self.begin(params)
        if making is None and budget is None:
            return None
        assert params.max_tokens is not None, "the door left it open"
        structure = making.result() if making is not None else None
        return Guide(self._maker.vocabulary, structure, budget, params.max_tokens)

    @cached_property
    def _maker(self) -> Maker:
        return Maker(self._load(), self._backend)


def digest(wanted: StructuredOutputsParams, thinking: Thinking | None) -> bytes:
    """Of all that a grammar depends on."""
    around = thinking and (thinking.opens, thinking.closes, thinking.state)
    return sha256(msgspec.msgpack.encode((wanted, around))).digest()


def _load(backend: str, vocabulary: Vocabulary) -> Backend:
    if backend == "xgrammar":
        from octavo.grammar.xgrammar import XGrammar

        return XGrammar(vocabulary)
    from octavo.grammar.llguidance import LLGuidance

    return LLGuidance(vocabulary)
