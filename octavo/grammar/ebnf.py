"""Grammars as text in EBNF, as in llama.cpp's GBNF: `root ::= "a" [b-z]* rest`.

It knows no lexemes: text is read character by character. Where no rule is recursive, all of it is
one regular expression; else every character is a lexeme of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from octavo.base.errors import RequestError
from octavo.grammar.joined import choice, lexeme, seq
from octavo.grammar.regex import text as text_of
from octavo.grammar.rules import Grammar, Lexeme, Node, Ref, Repeat
from octavo.grammar.syntax import (
    Definition,
    Either,
    Name,
    Parser,
    Pattern,
    Sequence,
    Source,
    Text,
    Times,
    Token,
    Tree,
    check_defined,
    names,
)
from octavo.grammar.terminals import Terminals
from octavo.grammar.tidy import tidy

MAX_REGEX = 4096  # parts of what becomes one regular expression
_NOTATION = re.compile(
    r"""
    (?P<blank> (?: \s+ | \#[^\n]* )+ )
    | (?P<head> [A-Za-z_][\w.-]* [ \t]* ::= )
    | (?P<text> "(?:[^"\\\n]|\\.)*" )
    | (?P<pattern> \[ (?:[^\]\\\n]|\\.)* \] | \. )
    | (?P<name> [A-Za-z_][\w.-]* )
    | (?P<count> \{\s*[0-9]+\s*(?:,\s*[0-9]*\s*)?\} | \{\s*,\s*[0-9]+\s*\} )
    | (?P<sign> [|()?*+] )
    """,
    re.VERBOSE | re.ASCII,
)
_IS_EBNF = re.compile(r"^\s*[A-Za-z_][\w.-]*\s*::=", re.MULTILINE | re.ASCII)


def is_ebnf(text: str) -> bool:
    """Whether it is this notation, and not Lark's."""
    return _IS_EBNF.search(text) is not None


def parse_ebnf(text: str) -> Grammar:
    """The grammar whose rule `root` is all of an answer.

    Raises:
        RequestError: with line and column: the syntax is wrong, a name is not defined, a rule can
            never come to an end, or is recursive on the left through others.
    """
    source = Source(text)
    parser = Parser(source, _NOTATION, _atom, lambda token: token.text[:-3].strip())
    found: dict[str, Definition] = {}
    while parser.token.kind != "end":
        if parser.token.kind != "head":
            raise parser.wrong(f"{parser.token.text[:40]!r} is not understood here")
        parser.definition(found)
    if "root" not in found:
        raise RequestError("grammar: there is no rule named root", "grammar")
    check_defined(source, found)
    terminals = Terminals(source, found)
    if _parts("root", found, [], {}) <= MAX_REGEX:
        return Grammar(lexeme(terminals.of(found["root"].body)))
    rules = {name: _node(definition.body, terminals) for name, definition in found.items()}
    grammar = Grammar(Ref("root"), rules)
    return tidy(grammar, lambda name, message: source.wrong(message, found[name].at))


def _atom(token: Token) -> Tree | None:
    if token.kind == "name":
        return Name(token.text, token.at)
    if token.kind == "pattern":
        return Pattern(token.text, "s", token.at)
    return None


def _parts(
    name: str, found: Mapping[str, Definition], above: list[str], known: dict[str, float]
) -> float:
    """How much the rule becomes with all that it refers to written in; infinite: recursive."""
    if name in above or len(above) > 32:
        return float("inf")
    if name not in known:
        body = found[name].body
        inner = (_parts(one.name, found, [*above, name], known) for one in names(body))
        known[name] = _size(body) + sum(inner)
    return known[name]


def _size(tree: Tree) -> int:
    if isinstance(tree, Sequence | Either):
        return sum(map(_size, tree.parts))
    if isinstance(tree, Times):
        return _size(tree.part)
    return len(tree.value) if isinstance(tree, Text) else 1


def _node(tree: Tree, terminals: Terminals) -> Node:
    if isinstance(tree, Name):
        return Ref(tree.name)
    if isinstance(tree, Sequence):
        return seq(*(_node(part, terminals) for part in tree.parts))
    if isinstance(tree, Either):
        return choice(*(_node(part, terminals) for part in tree.parts))
    if isinstance(tree, Times):
        return Repeat(_node(tree.part, terminals), tree.least, tree.most)
    if isinstance(tree, Text):
        return seq(*(Lexeme(text_of(char)) for char in tree.value))
    return lexeme(terminals.of(tree))
