"""The other backend, where it is installed: it must agree with our own automaton on every token."""

from __future__ import annotations

import random

import numpy as np
import pytest

from octavo.base.structured import Marker, StructuredOutputsParams, Thinking
from octavo.grammar.compile import compile_structure
from octavo.grammar.completion import Completion
from octavo.grammar.ebnf_text import ebnf_text
from octavo.grammar.rules import Grammar
from octavo.grammar.vocabulary import Vocabulary
from tests.grammar.bytewise import CALL, DONE, NAMES, VOCABULARY

pytest.importorskip("xgrammar")

PIECES = [
    b'{"',
    b'": ',
    b'"}',
    b"ab",
    b"\xc3\xa9",
    b"\x9f\x98",
    b"so </",
    b"t>",
    b"12",
    b"]]",
    b" ",
]
TOKENS = Vocabulary([*VOCABULARY.tokens, *PIECES], VOCABULARY.special_ids, VOCABULARY.eos_ids)
MARKED = Thinking(opens=Marker("<|call|>", CALL), closes=Marker("<|done|>", DONE))
SPELLED = Thinking(opens=Marker("<t>"), closes=Marker("</t>"), state="open")
POINT = {
    "type": "object",
    "properties": {"é": {"type": "string"}, "y": {"type": "integer", "minimum": -12}},
    "required": ["é"],
}
STRUCTURES: list[tuple[dict[str, object], Thinking | None]] = [
    ({"json": POINT}, None),
    ({"json": POINT}, MARKED),
    ({"json_object": True}, None),
    ({"regex": "(?!.*é😀)[aé😀]{1,4}b*"}, SPELLED),
    ({"regex": "[^a]{2,3}(ab|a)?"}, None),
    ({"choice": ["ab", "abab", "é"]}, None),
    ({"grammar": f'start: <|call|> "12"+ <[{DONE}]> (x | )\nx: "[" x "]" | /[^a]/'}, None),
    ({"grammar": 'root ::= "ab" "12" | "a" "b]" | "(" root ")"'}, None),
]


@pytest.fixture(scope="module")
def backend():
    from octavo.grammar.xgrammar import XGrammar

    return XGrammar(TOKENS)


def grammar_of(structure: dict[str, object], thinking: Thinking | None) -> Grammar:
    return compile_structure(StructuredOutputsParams(**structure), thinking, NAMES.get)


@pytest.mark.parametrize(("structure", "thinking"), STRUCTURES)
def test_masks_are_what_our_automaton_allows(backend, structure, thinking):
    grammar = grammar_of(structure, thinking)
    compiled, completion = backend.compile(grammar), Completion(grammar, TOKENS)
    for seed in range(5):
        draw = random.Random(seed)
        matcher, position = compiled.matcher(), completion.start
        for _ in range(24):
            mask = np.zeros(TOKENS.words, np.int32)
            matcher.mask(mask)
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(TOKENS.tokens)]
            wanted = [i for i in range(len(bits)) if completion.push(position, i) is not None]
            ends = [*TOKENS.eos_ids] if completion.may_end(position) else []
            assert matcher.is_whole == bool(ends)
            assert sorted([*wanted, *ends]) == np.flatnonzero(bits).tolist(), ebnf_text(grammar)
            if not wanted:
                break
            token_id = draw.choice(wanted)
            assert matcher.consume(token_id)
            position = completion.push(position, token_id)


def test_a_matcher_goes_back_and_has_copies(backend):
    matcher = backend.compile(grammar_of({"regex": "ab+c"}, None)).matcher()
    assert [matcher.consume(b) for b in b"abbx"] == [True, True, True, False]
    other = matcher.copy()
    matcher.rollback(2)
    assert not matcher.consume(ord("c")) and matcher.consume(ord("b"))
    assert other.consume(ord("c")) and other.is_whole and not matcher.is_whole
