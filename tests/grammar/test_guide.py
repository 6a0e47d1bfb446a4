"""Guides with random draws: whatever is drawn, an answer that had room to be whole is whole."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from octavo.base.structured import Marker, Thinking
from octavo.grammar.completion import Completion
from octavo.grammar.guide import Guide, Structure
from octavo.grammar.llguidance import LLGuidance
from octavo.grammar.matcher import Mask
from octavo.grammar.regex import concat, none_of, one_of, optional, repeat, text, union
from octavo.grammar.rules import Choice, Grammar, Lexeme, Ref, Repeat, Seq, TokenLexeme
from octavo.grammar.thinking import ThinkingBudget
from octavo.grammar.vocabulary import Vocabulary

BYTES = [bytes((byte,)) for byte in range(32, 127)]
WORDS = [b'{"', b'":', b'"}', b'","', b"[[", b"]]", b"]}", b"the", b" cat", b"id", b"aa", b"00"]
SPECIAL = [b"<think>", b"</think>", b"<end>", b"<stop>"]
TOKENS = [*BYTES, *WORDS, *SPECIAL]
THINK, CLOSE, END, STOP = range(len(BYTES) + len(WORDS), len(TOKENS))
VOCABULARY = Vocabulary(TOKENS, frozenset((THINK, CLOSE, END, STOP)), (END, STOP))


def lexeme(value: str) -> Lexeme:
    return Lexeme(text(value))


STRING = Lexeme(concat(text('"'), repeat(none_of('"')), text('"')))
NUMBER = Lexeme(union(text("0"), concat(one_of("123456789"), repeat(one_of("0123456789")))))
VALUE = {
    "value": Choice((STRING, NUMBER, Ref("list"), Ref("object"))),
    "list": Seq(
        (
            lexeme("["),
            Choice((Seq(()), Seq((Ref("value"), Repeat(Seq((lexeme(","), Ref("value")))))))),
            lexeme("]"),
        )
    ),
    "object": Seq(
        (
            lexeme('{"id":'),
            NUMBER,
            Choice((Seq(()), Seq((lexeme(',"the":'), Ref("value"))))),
            lexeme("}"),
        )
    ),
}
THOUGHT = Lexeme(repeat(none_of("<")))
GRAMMARS = {
    "json": Grammar(Ref("value"), VALUE),
    "object": Grammar(Seq((lexeme('{"a":'), Ref("object"), lexeme(',"b":'), Ref("list"), lexeme("}"))), VALUE),  # noqa: E501
    "word": Grammar(Lexeme(union(text("the cat"), text("the"), concat(text("id"), repeat(one_of("0"), 9))))),  # noqa: E501
    "optional": Grammar(Lexeme(concat(text("a"), optional(concat(text("b"), repeat(text("c"), 5)))))),  # noqa: E501
    "thinking": Grammar(Seq((THOUGHT, TokenLexeme(CLOSE), Ref("object"))), VALUE),
}  # fmt: skip


@cache
def structure(name: str) -> Structure:
    grammar = GRAMMARS[name]
    return Structure(LLGuidance(VOCABULARY).compile(grammar), Completion(grammar, VOCABULARY))


def allowed(mask: Mask) -> list[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return np.flatnonzero(bits[: len(TOKENS)]).tolist()


def draw(guide: Guide, rng: random.Random) -> int:
    """One token, as a step draws it."""
    [mask] = guide.masks(())
    token = rng.randrange(END) if mask is None else rng.choice(allowed(mask))
    if not guide.allows(token):
        token = rng.choice(allowed(guide.only()))
        assert mask is not None and token in allowed(mask)
        assert guide.allows(token)
    guide.take(token)
    return token


@pytest.mark.parametrize("name", GRAMMARS)
def test_answers_with_room_are_whole(name: str) -> None:
    completion = structure(name).completion
    assert completion is not None
    cut = 0
    for seed in range(150):
        rng = random.Random(seed)
        budget = completion.bound + rng.choice((0, 0, 1, 2, 3, 5, 8, 20, 60))
        guide = Guide(VOCABULARY, structure(name), None, budget)
        position = completion.start
        for count in range(1, budget + 1):
            token = draw(guide, rng)
            if token in (END, STOP):
                break
            after = completion.push(position, token)
            assert after is not None
            position = after
            assert guide.is_whole == completion.may_end(position)
            assert len(completion.tokens(position)) <= 2 * (budget - count) + 2
        else:
            cut += 1
        assert guide.is_whole and completion.may_end(position)
    assert cut, "the budget never ended an answer"


def test_answers_without_room_are_what_they_are() -> None:
    completion = structure("object").completion
    assert completion is not None
    rng = random.Random(1)
    guide = Guide(VOCABULARY, structure("object"), None, completion.bound - 1)
    for _ in range(completion.bound - 1):
        assert draw(guide, rng) < END
    assert not guide.is_whole


@pytest.mark.parametrize("name", GRAMMARS)
def test_guide_follows_from_its_tokens(name: str) -> None:
    """Who is computed again, or is copied, comes to the same place; drafts change nothing."""
    completion = structure(name).completion
    assert completion is not None
    for seed in range(40):
        rng = random.Random(seed)
        budget = completion.bound + rng.randrange(12)
        guide = Guide(VOCABULARY, structure(name), None, budget)
        tokens: list[int] = []
        masks: list[list[int]] = []
        while len(tokens) < budget and tokens[-1:] != [END]:
            [mask] = guide.masks(())
            assert mask is not None
            masks.append(allowed(mask))
            token = draw(guide, rng)
            token = END if token == STOP else token
            tokens.append(token)
        cut = rng.randrange(len(tokens))
        again = Guide(VOCABULARY, structure(name), None, budget)
        for token in tokens[:cut]:
            again.take(token)
        for one in (again, again.copy()):
            found = one.masks(tokens[cut:])
            places = [allowed(mask) for mask in found if mask is not None]
            assert places[: len(tokens) - cut] == masks[cut:]
            for token in tokens[cut:]:
                assert one.allows(token)
                one.take(token)
            assert one.is_whole == guide.is_whole


def test_draft_that_may_not_be_drawn_ends_the_masks() -> None:
    guide = Guide(VOCABULARY, structure("json"), None, 99)
    first, second, third = guide.masks([TOKENS.index(b"["), TOKENS.index(b"}")])[:3]
    assert first is not None and TOKENS.index(b"}") not in allowed(first)
    assert second is not None and TOKENS.index(b"]") in allowed(second)
    assert third is None
    [again] = guide.masks(())
    assert again is not None and allowed(again) == allowed(first)


def test_only_ends_where_the_answer_is_whole_and_nothing_fits() -> None:
    guide = Guide(VOCABULARY, structure("optional"), None, 2)
    guide.take(TOKENS.index(b"a"))
    assert guide.is_whole
    assert not guide.allows(TOKENS.index(b"b"))  # six more would have to follow
    assert allowed(guide.only()) == [END, STOP]


TAGS = Thinking(opens=Marker("<think>", THINK), closes=Marker("</think>", CLOSE), budget=3)
TEXTS = Thinking(opens=Marker("[the"), closes=Marker("cat]"), budget=2, state="open")


def test_thinking_is_closed_when_its_budget_is_used_up() -> None:
    guide = Guide(VOCABULARY, None, ThinkingBudget(TAGS, VOCABULARY), 99)
    for token in (5, THINK, 5, CLOSE, 6, 7, THINK, 8, 9):
        assert guide.masks(()) == [None]
        guide.take(token)
    [mask] = guide.masks(())
    assert mask is not None and allowed(mask) == [CLOSE]  # three tokens in both blocks
    assert guide.is_whole is None
    guide.take(CLOSE)
    assert guide.masks(()) == [None]


def test_budget_reached_within_drafts() -> None:
    guide = Guide(VOCABULARY, None, ThinkingBudget(TAGS, VOCABULARY), 99)
    masks = guide.masks([THINK, 1, 2, 3, CLOSE, 5])
    assert [mask is None for mask in masks] == [True, True, True, True, False, True, True]
    assert masks[4] is not None and allowed(masks[4]) == [CLOSE]


def test_closing_text_of_several_tokens_is_written_whole() -> None:
    guide = Guide(VOCABULARY, None, ThinkingBudget(TEXTS, VOCABULARY), 99)
    guide.take(5)
    guide.take(6)
    written = b""
    while (mask := guide.masks(())[0]) is not None:
        [token] = allowed(mask)
        written += TOKENS[token]
        guide.take(token)
    assert written == b"cat]"


def test_text_markers_are_found_across_tokens() -> None:
    guide = Guide(VOCABULARY, None, ThinkingBudget(TEXTS, VOCABULARY), 99)
    guide.take(TOKENS.index(b"c"))
    guide.take(TOKENS.index(b"a"))  # two tokens: the budget
    assert guide.masks(())[0] is not None
    closes = Guide(VOCABULARY, None, ThinkingBudget(TEXTS, VOCABULARY), 99)
    for piece in (b" cat", b"]", b"the", b"the", b"the"):
        closes.take(TOKENS.index(piece))
    assert closes.masks(()) == [None]


def test_no_budget_at_all_closes_at_once() -> None:
    none = Thinking(opens=TAGS.opens, closes=TAGS.closes, budget=0, state="open")
    [mask] = Guide(VOCABULARY, None, ThinkingBudget(none, VOCABULARY), 99).masks(())
    assert mask is not None and allowed(mask) == [CLOSE]


def test_budget_of_thinking_and_structure() -> None:
    budget = Thinking(opens=TAGS.opens, closes=TAGS.closes, budget=4, state="open")
    for seed in range(30):
        rng = random.Random(seed)
        guide = Guide(VOCABULARY, structure("thinking"), ThinkingBudget(budget, VOCABULARY), 40)
        tokens = []
        while len(tokens) < 40 and not (tokens and tokens[-1] in (END, STOP)):
            tokens.append(draw(guide, rng))
        assert guide.is_whole
        assert tokens.index(CLOSE) <= 4
