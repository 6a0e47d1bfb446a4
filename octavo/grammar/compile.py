"""From what a request says of an answer's shape to a grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octavo.base.errors import RequestError
from octavo.base.structured import Marker, StructuredOutputsParams, Thinking
from octavo.grammar.ebnf import is_ebnf, parse_ebnf
from octavo.grammar.free_text import text_up_to, text_without
from octavo.grammar.joined import MAX_TEXT, any_of, choice, lexeme, seq, spelled
from octavo.grammar.json_schema.compile import compile_schema
from octavo.grammar.lark import parse_lark
from octavo.grammar.pattern import parse_pattern
from octavo.grammar.regex import EMPTY, Regex, concat, one_of, optional, repeat, text, union
from octavo.grammar.rules import Grammar, Lexeme, Node, Repeat, TokenLexeme
from octavo.grammar.strict_json import load
from octavo.grammar.tags import parse_tags

# Between the tokens of JSON. It has an end, so that no answer is white space forever.
_WHITESPACE = union(
    EMPTY, text(" "), concat(optional(text("\r")), text("\n"), repeat(one_of(" \t"), 0, 32))
)
_BEHIND_THINKING = repeat(one_of(" \t\r\n"), 0, 4)


def compile_structure(
    structure: StructuredOutputsParams,
    thinking: Thinking | None,
    special: Callable[[str], int | None],
) -> Grammar:
    """The grammar of whole answers: of the reasoning that may come first, too.

    Args:
        special: the id of a special token by its name.

    Raises:
        RequestError: the structure is wrong or not supported; it names the field and the place.
    """
    try:
        answer = _Compiler(structure, special).grammar()
    except RecursionError as error:
        kind = structure.kind
        raise RequestError(f"{kind}: it is too long or nested too deep", kind) from error
    if thinking is None or thinking.state == "closed":
        return answer
    return Grammar(seq(_reasoning(thinking), answer.start), answer.rules)


def _reasoning(thinking: Thinking) -> Node:
    """What is written up to the answer. It cannot have an end marker in it."""
    block = seq(_closed_by(thinking.closes), lexeme(_BEHIND_THINKING))
    if thinking.state == "open":
        return block
    return Repeat(seq(_said(thinking.opens), block), 0, 1)


def _closed_by(marker: Marker) -> Node:
    if marker.token_id is None:
        return Lexeme(text_up_to(marker.text))
    return seq(Lexeme(text_without((marker.text,))), TokenLexeme(marker.token_id))


def _said(marker: Marker) -> Node:
    return spelled(marker.text) if marker.token_id is None else TokenLexeme(marker.token_id)


class _Compiler:
    def __init__(
        self, structure: StructuredOutputsParams, special: Callable[[str], int | None]
    ) -> None:
        self._structure = structure
        self._special = special

    def grammar(self) -> Grammar:
        structure = self._structure
        if structure.json_object:
            return self._schema({"type": "object"})
        if structure.regex is not None:
            return _of_regex(structure.regex)
        if structure.choice is not None:
            return _of_choice(structure.choice)
        if structure.grammar is not None:
            return self._written(structure.grammar)
        if structure.structural_tag is not None:
            assert isinstance(structure.structural_tag, str)
            return parse_tags(structure.structural_tag, self._schema, self._written)
        assert isinstance(structure.json, str)
        return self._schema(load(structure.json, "json"))

    def _schema(self, schema: Any) -> Grammar:
        return compile_schema(schema, self._whitespace())

    def _written(self, source: str) -> Grammar:
        if is_ebnf(source):
            return parse_ebnf(source)
        return parse_lark(source, self._special, self._schema)

    def _whitespace(self) -> Regex:
        if self._structure.disable_any_whitespace:
            return EMPTY
        pattern = self._structure.whitespace_pattern
        if pattern is None:
            return _WHITESPACE
        try:
            return parse_pattern(pattern, anchored=True)
        except RequestError as error:
            raise RequestError(f"whitespace_pattern: {error}", "whitespace_pattern") from error


def _of_regex(pattern: str) -> Grammar:
    regex = parse_pattern(pattern, anchored=True)
    if regex.shortest is None:
        raise RequestError("regex: no text matches it", "regex")
    return Grammar(lexeme(regex))


def _of_choice(choices: Sequence[str]) -> Grammar:
    short = [one for one in choices if len(one) <= MAX_TEXT]
    long = [spelled(one) for one in choices if len(one) > MAX_TEXT]
    return Grammar(choice(*([Lexeme(any_of(short))] if short else []), *long))
