"""From what a request says to a grammar."""

from __future__ import annotations

from collections.abc import Callable

from octavo.base.structured import StructuredOutputsParams, Thinking
from octavo.grammar.pattern import parse_pattern
from octavo.grammar.rules import Grammar, Lexeme


def compile_structure(
    structure: StructuredOutputsParams,
    thinking: Thinking | None,
    special: Callable[[str], int | None],
) -> Grammar:
    assert structure.regex is not None
    return Grammar(Lexeme(parse_pattern(structure.regex, anchored=True)))
