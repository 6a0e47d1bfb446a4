"""A grammar as Lark text in the dialect of llguidance."""

from __future__ import annotations

from octavo.grammar.regex import ANY_TEXT, Kind, Range, Regex
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq, TokenLexeme
from octavo.grammar.utf8 import UNICODE

_PLAIN_IN_SETS = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")


def lark_text(grammar: Grammar) -> str:
    """Rules in lower case, and a terminal for each different lexeme."""
    return _Writer(grammar).text


class _Writer:
    def __init__(self, grammar: Grammar) -> None:
        self._terminals: dict[Regex, str] = {}
        self._names = {name: f"r{i}" for i, name in enumerate(grammar.rules)}
        rules = [f"start: {self._node(grammar.start)}"]
        rules += [
            f"{self._names[name]}: {self._node(node)}" for name, node in grammar.rules.items()
        ]
        terminals = [f"{name}: {regex_text(regex)}" for regex, name in self._terminals.items()]
        self.text = "\n".join([*rules, *terminals, ""])

    def _node(self, node: Node) -> str:
        if isinstance(node, Lexeme):
            return self._terminals.setdefault(node.regex, f"T{len(self._terminals)}")
        if isinstance(node, TokenLexeme):
            return f"<[{node.token_id}]>"
        if isinstance(node, Ref):
            return self._names[node.name]
        if isinstance(node, Repeat):
            return f"({self._node(node.node)}){_times(node.least, node.most)}"
        if isinstance(node, Choice):
            assert node.nodes, "a choice of nothing"
            return "(" + " | ".join(map(self._node, node.nodes)) + ")"
        assert isinstance(node, Seq)
        return "(" + " ".join(map(self._node, node.nodes)) + ")" if node.nodes else '""'


def regex_text(regex: Regex) -> str:
    """One regular expression as an expression of Lark's terminals."""
    if regex == ANY_TEXT:
        return "/(?s:.*)/"
    if regex.kind == Kind.NOT:
        return f"~({regex_text(regex.parts[0])})"
    if regex.kind == Kind.BOTH:
        return "(" + " & ".join(map(regex_text, regex.parts)) + ")"
    if regex.is_plain:
        return "/" + _rust(regex).replace("/", r"\/") + "/" if regex.kind != Kind.EMPTY else '""'
    if regex.kind == Kind.UNION:
        return "(" + " | ".join(map(regex_text, regex.parts)) + ")"
    if regex.kind == Kind.CONCAT:
        return "(" + " ".join(map(regex_text, regex.parts)) + ")"
    assert regex.kind == Kind.REPEAT, regex.kind
    return f"({regex_text(regex.parts[0])}){_times(regex.least, regex.most)}"


def _rust(regex: Regex) -> str:
    """Without intersection and complement, in the syntax of Rust's regex crate."""
    if regex.kind == Kind.EMPTY:
        return "(?:)"
    if regex.kind == Kind.CHARS:
        return _set(regex.ranges)
    if regex.kind == Kind.CONCAT:
        return "".join(map(_rust, regex.parts))
    if regex.kind == Kind.UNION:
        return "(?:" + "|".join(map(_rust, regex.parts)) + ")"
    assert regex.kind == Kind.REPEAT, f"{regex.kind.name} is in no grammar"
    return f"(?:{_rust(regex.parts[0])}){_times(regex.least, regex.most)}"


def _set(ranges: tuple[Range, ...]) -> str:
    if ranges == UNICODE:
        return "(?s:.)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _char(ranges[0][0])
    return "[" + "".join(f"{_char(a)}-{_char(b)}" if a < b else _char(a) for a, b in ranges) + "]"


def _char(code: int) -> str:
    return chr(code) if code in _PLAIN_IN_SETS else f"\\x{{{code:X}}}"


def _times(least: int, most: int | None) -> str:
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return simple.get((least, most)) or f"{{{least},{'' if most is None else most}}}"
