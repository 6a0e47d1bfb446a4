"""A vocabulary of single bytes and two special tokens, and what a grammar accepts in it."""

from __future__ import annotations

from octavo.grammar.completion import Completion
from octavo.grammar.llguidance import LLGuidance
from octavo.grammar.rules import Grammar
from octavo.grammar.vocabulary import Vocabulary

END, CALL, DONE = 256, 257, 258
VOCABULARY = Vocabulary(
    [*(bytes((i,)) for i in range(256)), b"<|end|>", b"<|call|>", b"<|done|>"],
    frozenset((END, CALL, DONE)),
    (END,),
)
NAMES = {"<|end|>": END, "<|call|>": CALL, "<|done|>": DONE}
BACKEND = LLGuidance(VOCABULARY)


def ids(text: str | bytes | list[str | int]) -> list[int]:
    """A text, or texts and tokens, as tokens."""
    pieces = text if isinstance(text, list) else [text]
    found: list[int] = []
    for piece in pieces:
        piece = piece.encode() if isinstance(piece, str) else piece
        found += [piece] if isinstance(piece, int) else piece
    return found


def accepts(grammar: Grammar, text: str | bytes | list[str | int]) -> bool:
    """Whether an answer may be this; the matcher and our own automaton must agree."""
    matcher = BACKEND.compile(grammar).matcher()
    taken = all(matcher.consume(token_id) for token_id in ids(text)) and matcher.is_whole
    completion = Completion(grammar, VOCABULARY)
    position = completion.start
    for token_id in ids(text):
        position = position and completion.push(position, token_id)
    ours = position is not None and completion.may_end(position)
    assert ours or not taken, "the lexer takes the longest match, so it takes less if anything"
    return taken
