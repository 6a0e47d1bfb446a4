"""Writes sets of values as rules of a grammar, each set once.

Punctuation, names and the whitespace beside them are one lexeme, so that there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from octavo.base.errors import RequestError
from octavo.grammar.json_schema import numbers, strings
from octavo.grammar.json_schema.arrays import write_array
from octavo.grammar.json_schema.documents import Place
from octavo.grammar.json_schema.errors import SchemaError
from octavo.grammar.json_schema.expressions import Expr, place_of
from octavo.grammar.json_schema.language import any_text_of, is_empty
from octavo.grammar.json_schema.meaning import Meaning
from octavo.grammar.json_schema.nodes import DEAD, choice
from octavo.grammar.json_schema.objects import write_object
from octavo.grammar.json_schema.shapes import Shapes
from octavo.grammar.regex import NOTHING, Regex, concat, text, union
from octavo.grammar.rules import Lexeme, Node, Ref

MAX_NODES = 20_000


class Writer:
    """Rules, and what makes them.

    Args:
        whitespace: what may stand between the parts of JSON; may match nothing.
    """

    def __init__(self, meaning: Meaning, root: Place, whitespace: Regex) -> None:
        self.meaning = meaning
        self.rules: dict[str, Node] = {}
        self._space = whitespace
        self._names: dict[Hashable, Ref] = {}
        self._waiting: list[tuple[str, Callable[[], Node], Place]] = []
        self._place = root  # of the schema that is being written
        self._quoted: dict[Regex, Regex] = {}
        self._spelled: dict[tuple[frozenset[str], Regex, Regex], Regex] = {}
        self._nodes = 0

    def write(self) -> Node:
        """All rules, and the node to begin at."""
        start = self.value(self.meaning.at(self._place))
        while self._waiting:
            name, build, self._place = self._waiting.pop()
            self.rules[name] = build()
        return start

    def value(self, expr: Expr) -> Node:
        """A value in `expr`."""
        if self.meaning.of(expr).scalars:
            return self._scalars(expr)
        return self.rule(expr, lambda: self._any_shape(expr), place_of(expr))

    def rule(self, key: Hashable, build: Callable[[], Node], place: Place | None = None) -> Ref:
        """The rule of this key; `build` makes it, later and once, for the schema at `place`."""
        if key not in self._names:
            self._names[key] = Ref(f"json{len(self._names)}")
            self._waiting.append((self._names[key].name, build, place or self._place))
        return self._names[key]

    def error(self, problem: str) -> SchemaError:
        """An error at the schema that is being written."""
        return self._place.error(problem)

    def lexeme(self, regex: Regex) -> Lexeme:
        """
        Raises:
            SchemaError: the grammar gets too large.
        """
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self.error(f"the schema needs more than {MAX_NODES} parts of a grammar")
        return Lexeme(regex)

    def opening(self, bracket: str) -> Regex:
        return concat(text(bracket), self._space)

    def closing(self, bracket: str) -> Regex:
        return concat(self._space, text(bracket))

    @property
    def comma(self) -> Regex:
        return concat(self._space, text(","), self._space)

    def name(self, before: Regex, names: Regex) -> Lexeme:
        """`before`, one of these names, and the colon."""
        spelled = self.quoted(names)
        return self.lexeme(concat(before, spelled, self._space, text(":"), self._space))

    def quoted(self, value: Regex) -> Regex:
        if value not in self._quoted:
            self._quoted[value] = strings.quoted(value)
        return self._quoted[value]

    def _any_shape(self, expr: Expr) -> Node:
        shapes = self.meaning.of(expr)
        ways = [self._scalars(expr)]
        ways += [write_array(self, shape, (expr, "[", i)) for i, shape in enumerate(shapes.arrays)]
        ways += [
            write_object(self, shape, (expr, "{", i)) for i, shape in enumerate(shapes.objects)
        ]
        return choice(ways)

    def _scalars(self, expr: Expr) -> Node:
        shapes = self.meaning.of(expr)
        key = (shapes.constants, shapes.numbers, shapes.strings)
        if key not in self._spelled:
            self._spelled[key] = self._all_scalars(shapes)
        found = self._spelled[key]
        return DEAD if found == NOTHING else self.lexeme(found)

    def _all_scalars(self, shapes: Shapes) -> Regex:
        """All but arrays and objects, as one expression; NOTHING if there are none."""
        try:
            numbered, texts = not is_empty(shapes.numbers), not is_empty(shapes.strings)
        except RequestError as error:
            raise self.error(str(error)) from error
        return union(
            any_text_of(sorted(shapes.constants)),
            numbers.spelled(shapes.numbers) if numbered else NOTHING,
            self.quoted(shapes.strings) if texts else NOTHING,
        )
