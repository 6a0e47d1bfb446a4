"""Context-free grammars over lexemes: what any kind of structure is compiled to.

A lexeme is a regular expression, or one token of the vocabulary. Where one lexeme can end and
another begin, the longer match wins, as in every lexer: write grammars so that the first byte of
what follows cannot belong to the lexeme before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from octavo.grammar.regex import Regex


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A text that a regular expression matches; may be empty."""

    regex: Regex


@dataclass(frozen=True, slots=True)
class TokenLexeme:
    """Exactly this token of the vocabulary, such as a special one that no text spells."""

    token_id: int


@dataclass(frozen=True, slots=True)
class Seq:
    """All of them, in order."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of them; of none, nothing can be written."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times; None: any number."""

    node: Node
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule, by name. Rules may be recursive, on the left too where a rule names itself."""

    name: str


Node = Lexeme | TokenLexeme | Seq | Choice | Repeat | Ref


@dataclass(frozen=True)
class Grammar:
    """Rules, and the node that everything is derived from."""

    start: Node
    rules: Mapping[str, Node] = field(default_factory=dict)
