"""Positions in random grammars against all their short sentences."""

from __future__ import annotations

import pytest
from enumerated import sentences
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.base.errors import RequestError
from octavo.grammar.completion import MAX_PAIRS, Completion
from octavo.grammar.regex import both, complement, concat, one_of, optional, repeat, text, union
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq, TokenLexeme
from octavo.grammar.spelling import spelled
from octavo.grammar.vocabulary import Vocabulary

LONGEST = 5
TOKENS = [b"a", b"b", b"c", b"d", b"ab", b"bc", b"abc", b"aa", b"dd", b"<mark>", b"", b"<end>"]
MARK, END = 9, 11
VOCABULARY = Vocabulary(TOKENS, frozenset((MARK, END)), (END,))

LEXEMES = [
    text("a"),
    text("ab"),
    union(text("bc"), text("d")),
    repeat(one_of("ab")),
    repeat(text("c"), 1, 2),
    optional(text("d")),
    both(repeat(one_of("abc"), 0, 3), complement(text("ab"))),
    both(text("a"), text("b")),
]
leaves = st.sampled_from(LEXEMES).map(Lexeme) | st.sampled_from(["r", "s"]).map(Ref)


def _branches(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(nodes, min_size=0, max_size=3).map(tuple)
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None)])
    return (
        several.map(Seq)
        | several.map(Choice)
        | st.builds(lambda node, b: Repeat(node, *b), nodes, bounds)
    )


nodes = st.recursive(leaves, _branches, max_leaves=5)


def _guarded(node: Node) -> Node:
    """Never recursive on the left."""
    return Seq((Lexeme(text("a")), node))


grammars = st.builds(
    lambda start, r, s: Grammar(start, {"r": _guarded(r), "s": _guarded(s)}), nodes, nodes, nodes
)


def fewest_tokens(sentences: frozenset[bytes]) -> int:
    return min(len(spelled(s, VOCABULARY) or ()) for s in sentences)


@settings(deadline=None, max_examples=300)
@given(grammar=grammars)
def test_positions_know_what_ends_them(grammar: Grammar) -> None:
    every = sentences(grammar, LONGEST)
    try:
        completion = Completion(grammar, VOCABULARY)
    except RequestError:
        assert not every
        return
    begun = {text[:n] for text in every for n in range(len(text) + 1)}
    for prefix in begun:
        position = completion.start
        for byte in prefix:
            position = completion.push(position, TOKENS.index(bytes((byte,))))
            assert position is not None
            if len(position.pairs) == MAX_PAIRS:
                return
        assert completion.may_end(position) == (prefix in every)
        ending = b"".join(TOKENS[token] for token in completion.tokens(position))
        assert len(prefix + ending) > LONGEST or prefix + ending in every
        shortest = completion.shortest(position)
        assert len(completion.tokens(position)) == shortest.counts[0] <= position.cost
        assert completion.tokens(position)[:1] == (
            [] if prefix + ending == prefix else [shortest.first]
        )
    for prefix in begun:  # and nothing else has a place, as far as can be told from short ones
        for byte in b"abcd":
            longer = prefix + bytes((byte,))
            if len(longer) < LONGEST and longer not in begun:
                check_refused(completion, longer)


def check_refused(completion: Completion, text: bytes) -> None:
    """What is behind `text` is either nothing or needs more than the longest sentence has."""
    position = completion.start
    for byte in text:
        after = completion.push(position, TOKENS.index(bytes((byte,))))
        if after is None:
            return
        position = after
    ending = b"".join(TOKENS[token] for token in completion.tokens(position))
    assert len(text + ending) > LONGEST


@settings(deadline=None, max_examples=200)
@given(grammar=grammars)
def test_bound_is_near_the_fewest_tokens(grammar: Grammar) -> None:
    every = sentences(grammar, LONGEST)
    if every:
        completion = Completion(grammar, VOCABULARY)
        fewest = fewest_tokens(every)
        assert completion.bound <= max(fewest + 1, 1.5 * fewest)


@settings(deadline=None, max_examples=200)
@given(grammar=grammars, drawn=st.lists(st.sampled_from(range(9)), max_size=6))
def test_token_of_many_bytes_is_its_bytes(grammar: Grammar, drawn: list[int]) -> None:
    try:
        completion = Completion(grammar, VOCABULARY)
    except RequestError:
        return
    at_once = by_byte = completion.start
    for token in drawn:
        after = completion.push(at_once, token)
        for byte in TOKENS[token]:
            by_byte = by_byte and completion.push(by_byte, TOKENS.index(bytes((byte,))))
        assert (after is None) == (by_byte is None)
        if after is None or len(after.pairs) == MAX_PAIRS:
            return
        assert set(after.pairs) == set(by_byte.pairs)
        at_once = after


def test_special_tokens_are_no_text() -> None:
    node = Seq((Lexeme(repeat(one_of("ab<mark>"))), TokenLexeme(MARK), Lexeme(text("b"))))
    completion = Completion(Grammar(node), VOCABULARY)
    assert completion.tokens(completion.start) == [MARK, 1]
    position = completion.push(completion.start, 4)
    assert position is not None
    position = completion.push(position, MARK)
    assert position is not None and completion.tokens(position) == [1]
    assert completion.push(position, MARK) is None
    assert completion.push(position, 0) is None


@pytest.mark.parametrize(
    "node",
    [
        Choice(()),
        Lexeme(both(text("a"), text("b"))),
        Ref("r"),
        Seq((Lexeme(text("a")), Ref("r"))),
        Lexeme(text("e")),  # no token spells it
    ],
)
def test_grammars_of_nothing_are_refused(node: Node) -> None:
    with pytest.raises(RequestError, match="no answer can satisfy it"):
        Completion(Grammar(node, {"r": Seq((Lexeme(text("a")), Ref("r")))}), VOCABULARY)


def test_recursion_costs_what_its_shortest_way_out_costs() -> None:
    list_ = Seq((Lexeme(text("a")), Choice((Ref("r"), Lexeme(text("bc")))), Lexeme(text("d"))))
    completion = Completion(Grammar(Ref("r"), {"r": list_}), VOCABULARY)
    assert completion.bound == 2  # abc d
    position = completion.start
    for depth in range(1, 2000):
        after = completion.push(position, 0)
        assert after is not None
        position = after
        assert len(position.pairs) <= 2
        assert position.cost == 1 + depth
    ending = b"".join(TOKENS[token] for token in completion.tokens(position))
    assert ending == b"bc" + b"d" * 1999


def test_repeated_pieces_are_counted() -> None:
    part = Repeat(Lexeme(concat(text("a"), optional(text("b")))), 3, 5)
    completion = Completion(Grammar(part), VOCABULARY)
    position = completion.start
    left = []
    for _ in range(5):
        after = completion.push(position, 0)
        assert after is not None
        position = after
        left.append(len(completion.tokens(position)))
    assert left == [1, 1, 0, 0, 0]  # aa is one token
    assert completion.push(position, 0) is None
