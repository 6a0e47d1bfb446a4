"""A grammar as EBNF text in the dialect of XGrammar, which reads text character by character."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.base.errors import RequestError
from octavo.grammar.regex import Kind, Range, Regex, merge
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq, TokenLexeme

MAX_STATES = 4096  # of all intersections and complements together
_PLAIN_IN_SETS = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_ ")
_LEADS = ((0xC2, 0xDF, 1, 0xC0), (0xE0, 0xEF, 2, 0xE0), (0xF0, 0xF4, 3, 0xF0))


def ebnf_text(grammar: Grammar) -> str:
    """A rule for each rule, and for each state of what only an automaton can say.

    Raises:
        RequestError: intersections and complements in it are too large.
    """
    return _Writer(grammar).text


class _Writer:
    def __init__(self, grammar: Grammar) -> None:
        self._states: dict[Regex, str] = {}
        self._names = {name: f"r{i}" for i, name in enumerate(grammar.rules)}
        rules = [f"root ::= {self._node(grammar.start)}"]
        rules += [f"{self._names[n]} ::= {self._node(node)}" for n, node in grammar.rules.items()]
        written = 0
        while written < len(self._states):  # writing one may find more
            state = list(self._states)[written]
            rules.append(f"{self._states[state]} ::= {self._state(state)}")
            written += 1
        self.text = "\n".join([*rules, ""])

    def _node(self, node: Node) -> str:
        if isinstance(node, Lexeme):
            return self._regex(node.regex)
        if isinstance(node, TokenLexeme):
            return f"Token({node.token_id})"
        if isinstance(node, Ref):
            return self._names[node.name]
        if isinstance(node, Repeat):
            return f"({self._node(node.node)}){_times(node.least, node.most)}"
        if isinstance(node, Choice):
            assert node.nodes, "a choice of nothing"
            return "(" + " | ".join(map(self._node, node.nodes)) + ")"
        assert isinstance(node, Seq)
        return "(" + " ".join(map(self._node, node.nodes)) + ")" if node.nodes else '""'

    def _regex(self, regex: Regex) -> str:
        if regex.kind == Kind.EMPTY:
            return '""'
        if regex.kind == Kind.CHARS:
            return _set(regex.ranges)
        if regex.kind == Kind.CONCAT:
            return "(" + " ".join(map(self._regex, regex.parts)) + ")"
        if regex.kind == Kind.UNION:
            return "(" + " | ".join(map(self._regex, regex.parts)) + ")"
        if regex.kind == Kind.REPEAT:
            return f"({self._regex(regex.parts[0])}){_times(regex.least, regex.most)}"
        assert regex.kind == Kind.BOTH, f"{regex.kind.name} is in no grammar"
        return self._name_of(regex)

    def _name_of(self, state: Regex) -> str:
        if state.is_plain:
            return self._regex(state)
        if state not in self._states and len(self._states) >= MAX_STATES:
            raise RequestError(
                f"structured_outputs: it needs more than {MAX_STATES} states in xgrammar",
                "structured_outputs",
            )
        return self._states.setdefault(state, f"s{len(self._states)}")

    def _state(self, state: Regex) -> str:
        after: dict[Regex, list[Range]] = {}
        for span, left in _steps(state):
            after.setdefault(left, []).append(span)
        options = ['""'] if state.nullable else []
        options += [f"{_set(merge(spans))} {self._name_of(left)}" for left, spans in after.items()]
        assert options, "what matches nothing is reached by nobody"
        return " | ".join(options)


def _steps(state: Regex) -> Iterator[tuple[Range, Regex]]:
    """Ranges of characters, and what may follow them."""
    for low, high, left in _bytes(state, 0, 0x7F):
        yield (low, high), left
    for first, last, more, marker in _LEADS:
        for low, high, left in _bytes(state, first, last):
            yield from _continued(left, low - marker, high - marker, more)


def _continued(state: Regex, low: int, high: int, more: int) -> Iterator[tuple[Range, Regex]]:
    """From the bits `low` to `high` of the bytes before, on to `more` others of six bits each."""
    if not more:
        yield (low, high), state
        return
    for begin, end, left in _bytes(state, 0x80, 0xBF):
        first, last = begin - 0x80, end - 0x80
        if (first, last) == (0, 63):
            yield from _continued(left, low << 6, high << 6 | 63, more - 1)
        else:
            for bits in range(low, high + 1):
                yield from _continued(left, bits << 6 | first, bits << 6 | last, more - 1)


def _bytes(state: Regex, low: int, high: int) -> Iterator[tuple[int, int, Regex]]:
    """Bytes from `low` to `high`, in ranges, and what is left behind each where that matches any
    text."""
    inside = sorted(split for split in state.splits if low < split <= high)
    for begin, end in zip((low, *inside), (*inside, high + 1), strict=True):
        left = state.derivative(begin)
        if left.kind != Kind.NOTHING and left.shortest is not None:
            yield begin, end - 1, left


def _set(ranges: tuple[Range, ...]) -> str:
    return "[" + "".join(f"{_char(a)}-{_char(b)}" if a < b else _char(a) for a, b in ranges) + "]"


def _char(code: int) -> str:
    return chr(code) if code in _PLAIN_IN_SETS else f"\\U{code:08x}"


def _times(least: int, most: int | None) -> str:
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return simple.get((least, most)) or f"{{{least},{'' if most is None else most}}}"
