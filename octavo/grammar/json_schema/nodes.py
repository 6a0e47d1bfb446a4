"""Nodes of a grammar in their simplest form, and what of a grammar can be written at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from octavo.grammar.rules import Choice, Grammar, Node, Ref, Repeat, Seq

DEAD = Choice(())
NONE = Seq(())


def seq(*nodes: Node) -> Node:
    """One after the other; nothing can be written if one of them cannot."""
    if DEAD in nodes:
        return DEAD
    flat = [n for node in nodes for n in (node.nodes if isinstance(node, Seq) else (node,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def choice(nodes: Sequence[Node]) -> Node:
    """Any of them."""
    flat = [n for node in nodes for n in (node.nodes if isinstance(node, Choice) else (node,))]
    found = tuple(dict.fromkeys(flat))
    return found[0] if len(found) == 1 else Choice(found)


def repeat(node: Node, least: int = 0, most: int | None = None) -> Node:
    if node == DEAD:
        return DEAD if least else NONE
    if most == 0:
        return NONE
    return node if (least, most) == (1, 1) else Repeat(node, least, most)


def pruned(start: Node, rules: Mapping[str, Node]) -> Grammar | None:
    """The grammar without what leads to no text, and without rules that nothing uses; None if no
    text is left."""
    alive = _alive(rules)
    kept = {name: _without_dead(rules[name], alive) for name in alive}
    start = _without_dead(start, alive)
    if start == DEAD:
        return None
    reached: dict[str, Node] = {}
    waiting = list(_refs(start))
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = kept[name]
            waiting.extend(_refs(kept[name]))
    return Grammar(start, reached)


def _alive(rules: Mapping[str, Node]) -> set[str]:
    """Rules that derive a text. A rule is looked at again when one that it names is found to."""
    users: dict[str, list[str]] = {}
    for name, node in rules.items():
        for used in _refs(node):
            users.setdefault(used, []).append(name)
    alive = set[str]()
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in alive and _derives(rules[name], alive):
            alive.add(name)
            waiting.extend(users.get(name, ()))
    return alive


def _derives(node: Node, alive: set[str]) -> bool:
    if isinstance(node, Ref):
        return node.name in alive
    if isinstance(node, Seq):
        return all(_derives(part, alive) for part in node.nodes)
    if isinstance(node, Choice):
        return any(_derives(part, alive) for part in node.nodes)
    return not isinstance(node, Repeat) or not node.least or _derives(node.node, alive)


def _without_dead(node: Node, alive: set[str]) -> Node:
    if isinstance(node, Ref):
        return node if node.name in alive else DEAD
    if isinstance(node, Seq):
        return seq(*(_without_dead(part, alive) for part in node.nodes))
    if isinstance(node, Choice):
        ways = [_without_dead(part, alive) for part in node.nodes]
        return choice([way for way in ways if way != DEAD])
    if isinstance(node, Repeat):
        return repeat(_without_dead(node.node, alive), node.least, node.most)
    return node


def _refs(node: Node) -> Iterator[str]:
    if isinstance(node, Ref):
        yield node.name
    elif isinstance(node, Repeat):
        yield from _refs(node.node)
    elif isinstance(node, Seq | Choice):
        for part in node.nodes:
            yield from _refs(part)
