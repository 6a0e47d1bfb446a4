"""Rules that people wrote, made fit: no recursion on the left, no rule without an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from octavo.base.errors import RequestError
from octavo.grammar.joined import choice, seq
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq, TokenLexeme

Wrong = Callable[[str, str], RequestError]  # of a rule's name and what is wrong with it


def tidy(grammar: Grammar, wrong: Wrong) -> Grammar:
    """The same texts. `a: a "x" | "y"` becomes a repetition; rules that nothing needs are left out.

    Raises:
        RequestError: of `wrong`: a rule has no text that ends, or begins with itself through other
            rules, or where what is before it may be empty.
    """
    needed = _needed(grammar)
    rules = {name: _without_left(name, grammar.rules[name], wrong) for name in needed}
    _check_ends(rules, wrong)
    _check_left(rules, wrong)
    return Grammar(grammar.start, rules)


def _needed(grammar: Grammar) -> list[str]:
    found = dict.fromkeys(_refs(grammar.start))
    waiting = list(found)
    while waiting:
        for name in _refs(grammar.rules[waiting.pop()]):
            if name not in found:
                found[name] = None
                waiting.append(name)
    return list(found)


def _refs(node: Node) -> Iterator[str]:
    if isinstance(node, Ref):
        yield node.name
    elif isinstance(node, Repeat):
        yield from _refs(node.node)
    elif isinstance(node, Seq | Choice):
        for one in node.nodes:
            yield from _refs(one)


def _without_left(name: str, node: Node, wrong: Wrong) -> Node:
    """What begins with the rule itself becomes a tail that may be repeated."""
    itself = Ref(name)
    first, tails = [], []
    for option in node.nodes if isinstance(node, Choice) else (node,):
        parts = option.nodes if isinstance(option, Seq) else (option,)
        if not parts or parts[0] != itself:
            first.append(option)
        elif len(parts) > 1:  # alone it says nothing
            tails.append(seq(*parts[1:]))
    if not first:
        raise wrong(name, f"{name} is made of itself only")
    return seq(choice(*first), Repeat(choice(*tails))) if tails else choice(*first)


def _check_ends(rules: Mapping[str, Node], wrong: Wrong) -> None:
    ending = _fixed_point(rules, _ends)
    for name in rules:
        if name not in ending:
            raise wrong(name, f"{name} has no text that comes to an end")


def _ends(node: Node, known: set[str]) -> bool:
    if isinstance(node, Lexeme):
        return node.regex.shortest is not None
    if isinstance(node, Ref):
        return node.name in known
    if isinstance(node, Repeat):
        return not node.least or _ends(node.node, known)
    if isinstance(node, TokenLexeme):
        return True
    return (all if isinstance(node, Seq) else any)(_ends(one, known) for one in node.nodes)


def _may_be_empty(node: Node, known: set[str]) -> bool:
    if isinstance(node, Lexeme):
        return node.regex.nullable
    if isinstance(node, Ref):
        return node.name in known
    if isinstance(node, Repeat):
        return not node.least or _may_be_empty(node.node, known)
    if isinstance(node, TokenLexeme):
        return False
    return (all if isinstance(node, Seq) else any)(_may_be_empty(one, known) for one in node.nodes)


def _fixed_point(rules: Mapping[str, Node], holds: Callable[[Node, set[str]], bool]) -> set[str]:
    """The rules of which it holds, as far as it holds of those that they name."""
    known: set[str] = set()
    while True:
        more = {name for name, node in rules.items() if name not in known and holds(node, known)}
        if not more:
            return known
        known |= more


def _check_left(rules: Mapping[str, Node], wrong: Wrong) -> None:
    """No rule comes back to itself before something was written."""
    empty = _fixed_point(rules, _may_be_empty)
    done: set[str] = set()
    for name in rules:
        path: dict[str, Iterator[str]] = {}
        if name not in done:
            path[name] = _leading(rules[name], empty)
        while path:
            last = next(reversed(path))
            following = next(path[last], None)
            if following is None:
                done.add(last)
                path.pop(last)
            elif following in path:
                cycle = [*path, following]
                shown = " -> ".join(cycle[cycle.index(following) :])
                raise wrong(following, f"a rule that begins with itself through others: {shown}")
            elif following not in done:
                path[following] = _leading(rules[following], empty)


def _leading(node: Node, empty: set[str]) -> Iterator[str]:
    """Rules that what the node describes may begin with."""
    if isinstance(node, Ref):
        yield node.name
    elif isinstance(node, Repeat):
        yield from _leading(node.node, empty)
    elif isinstance(node, Choice):
        for one in node.nodes:
            yield from _leading(one, empty)
    elif isinstance(node, Seq):
        for one in node.nodes:
            yield from _leading(one, empty)
            if not _may_be_empty(one, empty):
                return
