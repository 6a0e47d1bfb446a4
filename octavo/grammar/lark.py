"""Grammars as text in a dialect of Lark: rules in lower case, terminals in upper case.

A terminal, and each text or pattern in a rule, is one lexeme. `&` and `~` are intersection and
complement of terminals; `<|name|>`, `<[17]>` and `<[3-5,8]>` are tokens by name or id;
`%json {...}` is a JSON value of that schema. Aliases and priorities have no meaning here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from octavo.base.errors import RequestError
from octavo.grammar.joined import Joined, choice, lexeme, seq, spelled
from octavo.grammar.regex import EMPTY, Regex, concat, repeat, union
from octavo.grammar.rules import Grammar, Lexeme, Node, Ref, Repeat, TokenLexeme
from octavo.grammar.syntax import (
    Definition,
    Either,
    Json,
    Name,
    Parser,
    Pattern,
    Sequence,
    Source,
    Special,
    Text,
    Times,
    Token,
    Tree,
    names,
)
from octavo.grammar.terminals import Terminals
from octavo.grammar.tidy import tidy

MAX_TOKEN_IDS = 4096  # of one <[...]>
_NOTATION = re.compile(
    r"""
    (?P<blank> (?: \s+ | //[^\n]* | \#[^\n]* )+ )
    | (?P<head> [?!]{0,2} [A-Za-z_]\w* (?:\.-?[0-9]+)? (?:[ \t]*\[[^\]\n]*\])? (?:\{[^}\n]*\})?
      [ \t]* : (?!:) )
    | (?P<text> "(?:[^"\\\n]|\\.)*"i? )
    | (?P<pattern> /(?![/*])(?:[^/\\\n]|\\.)+/[a-z]* )
    | (?P<special> <\[[^\]>\n]*\]> | <[^<>\[\]\s"]+> )
    | (?P<json> %json\b\s* )
    | (?P<directive> %[a-z]+ )
    | (?P<name> [A-Za-z_]\w* )
    | (?P<count> \{\s*[0-9]+\s*(?:,\s*[0-9]*\s*)?\} | \{\s*,\s*[0-9]+\s*\}
      | ~\s*[0-9]+(?:\s*\.\.\s*[0-9]+)? )
    | (?P<alias> ->\s*\w+ )
    | (?P<sign> \.\. | [|&~()\[\]?*+.,@] )
    """,
    re.VERBOSE | re.ASCII,
)
_HEAD = re.compile(r"[?!]*(\w+)(?:\.-?[0-9]+)?[ \t]*(\[[^\]]*\])?(\{[^}]*\})?[ \t]*:")
_TOKEN_IDS = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?")
_INT, _EXPONENT = "[0-9]+", "[eE][+-]?[0-9]+"
_DECIMAL = r"([0-9]+\.[0-9]*|\.[0-9]+)"
_FLOAT = f"([0-9]+{_EXPONENT}|{_DECIMAL}({_EXPONENT})?)"
_COMMON = {  # what `%import common` knows
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": _INT,
    "SIGNED_INT": "[+-]?" + _INT,
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": "[+-]?" + _FLOAT,
    "NUMBER": f"({_FLOAT}|{_INT})",
    "SIGNED_NUMBER": f"[+-]?({_FLOAT}|{_INT})",
    "ESCAPED_STRING": r'"([^"\\\n]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[a-zA-Z]",
    "WORD": "[a-zA-Z]+",
    "CNAME": "[_a-zA-Z][_a-zA-Z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "SQL_COMMENT": r"--[^\n]*",
    "C_COMMENT": r"/\*([^*]|\*+[^*/])*\*+/",
}


def parse_lark(
    text: str, special: Callable[[str], int | None], json: Callable[[Any], Grammar]
) -> Grammar:
    """The grammar whose rule `start` is all of an answer.

    Args:
        special: the id of a special token by its name, such as `<|eot|>`.
        json: the grammar of a JSON Schema.

    Raises:
        RequestError: with line and column: the syntax is wrong, a name is not defined, a rule can
            never come to an end, or is recursive on the left through others.
    """
    return _Reader(text, special, json).grammar()


class _Reader:
    def __init__(
        self, text: str, special: Callable[[str], int | None], json: Callable[[Any], Grammar]
    ) -> None:
        self._source = Source(text)
        self._special = special
        self._joined = Joined(json)
        self._definitions: dict[str, Definition] = {}
        self._ignored_trees: list[Tree] = []
        self._read()
        self._terminals = Terminals(
            self._source, {n: d for n, d in self._definitions.items() if _is_terminal(n)}
        )
        self._ignored = repeat(union(*map(self._terminals.of, self._ignored_trees)))

    def grammar(self) -> Grammar:
        if "start" not in self._definitions:
            raise RequestError("grammar: there is no rule named start", "grammar")
        rules = {
            name: self._node(definition.body)
            for name, definition in self._definitions.items()
            if not _is_terminal(name)
        }
        start = seq(lexeme(self._ignored), Ref("start"))
        return tidy(Grammar(start, {**rules, **self._joined.rules}), self._wrong_rule)

    def _wrong_rule(self, name: str, message: str) -> RequestError:
        definition = self._definitions.get(name)
        return self._source.wrong(message, definition.at if definition else 0)

    # Reading.

    def _read(self) -> None:
        parser = Parser(self._source, _NOTATION, self._atom, self._head)
        while parser.token.kind != "end":
            if parser.token.kind == "directive":
                self._directive(parser)
            elif parser.token.kind == "head":
                parser.definition(self._definitions)
            else:
                raise parser.wrong(f"{parser.token.text[:40]!r} is not understood here")

    def _head(self, token: Token) -> str:
        found = _HEAD.fullmatch(token.text)
        assert found is not None, token
        if found[2]:
            raise self._source.wrong(f"the attributes {found[2]} are not supported", token.at)
        if found[3]:
            raise self._source.wrong("templates are not supported", token.at)
        return found[1]

    def _atom(self, token: Token) -> Tree | None:
        if token.kind == "name":
            return Name(token.text, token.at)
        if token.kind == "special":
            return Special(token.text[1:-1], token.at)
        if token.kind == "json":
            return Json(token.value)
        if token.kind == "pattern":
            body, _, flags = token.text[1:].rpartition("/")
            return Pattern(body, flags, token.at)
        return None

    def _directive(self, parser: Parser) -> None:
        token = parser.advance()
        if token.text == "%ignore":
            self._ignored_trees.append(parser.either())
        elif token.text == "%import":
            self._import(parser, token.at)
        else:
            raise self._source.wrong(f"{token.text} is not supported", token.at)

    def _import(self, parser: Parser, at: int) -> None:
        if parser.advance().text != "common":
            raise self._source.wrong("only common can be imported", at)
        parser.take(".")
        several = parser.take("(")
        while parser.token.kind == "name":
            token = parser.advance()
            if token.text not in _COMMON:
                raise self._source.wrong(f"common has no {token.text} here", token.at)
            name = token.text
            if parser.token.kind == "alias":
                name = parser.advance().text.removeprefix("->").strip()
            self._definitions[name] = Definition(Pattern(_COMMON[token.text], "", at), at)
            if not several:
                return
            parser.take(",")
        if not (several and parser.take(")")):
            raise parser.wrong("%import common.NAME or common (NAME, NAME)")

    # Rules.

    def _node(self, tree: Tree) -> Node:
        if isinstance(tree, Special):
            return self._ended(choice(*map(TokenLexeme, self._token_ids(tree))))
        if isinstance(tree, Json):
            return self._ended(self._joined.json(tree.schema))
        if isinstance(tree, Sequence):
            return seq(*map(self._node, tree.parts))
        if isinstance(tree, Either):
            return choice(*map(self._node, tree.parts))
        if isinstance(tree, Times):
            return Repeat(self._node(tree.part), tree.least, tree.most)
        if isinstance(tree, Name) and not _is_terminal(tree.name):
            return self._ref(tree)
        if isinstance(tree, Text) and not tree.any_case and self._ignored == EMPTY:
            return spelled(tree.value)
        self._check_terminal(tree)
        return self._lexeme(self._terminals.of(tree))

    def _check_terminal(self, tree: Tree) -> None:
        for name in names(tree):
            if not _is_terminal(name.name):
                raise self._source.wrong(f"& and ~ are of terminals, not of {name.name}", name.at)

    def _ref(self, name: Name) -> Node:
        if name.name not in self._definitions:
            raise self._source.wrong(f"{name.name} is not defined", name.at)
        return Ref(name.name)

    def _lexeme(self, regex: Regex) -> Node:
        return lexeme(concat(regex, self._ignored))

    def _ended(self, node: Node) -> Node:
        return node if self._ignored == EMPTY else seq(node, Lexeme(self._ignored))

    def _token_ids(self, special: Special) -> list[int]:
        if special.name.startswith("["):
            return list(dict.fromkeys(self._listed(special)))
        for name in (f"<{special.name}>", special.name):
            token_id = self._special(name)
            if token_id is not None:
                return [token_id]
        raise self._source.wrong(f"the model has no token <{special.name}>", special.at)

    def _listed(self, special: Special) -> Iterator[int]:
        for piece in special.name[1:-1].split(","):
            found = _TOKEN_IDS.fullmatch(piece)
            if found is None:
                raise self._source.wrong(f"<{special.name[:40]}> is no list of ids", special.at)
            low, high = int(found[1]), int(found[2] or found[1])
            if not 0 <= high - low < MAX_TOKEN_IDS:
                raise self._source.wrong(f"at most {MAX_TOKEN_IDS} ids, in order", special.at)
            yield from range(low, high + 1)


def _is_terminal(name: str) -> bool:
    return name.isupper()
