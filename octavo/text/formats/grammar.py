"""Calls of tools as grammar text (Lark): what a model may write so that it can only be right.

`%json {schema}` stands for a JSON value of that schema, `<[17]>` for the token of that id. Where
free text is followed by a marker that is text, the two are one terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from octavo.text.formats.description import FIELDS, Calls, Description
from octavo.text.formats.grammar_values import (
    NO_PARAMETERS,
    Values,
    as_json,
    literal_text,
    pattern,
    quoted,
)
from octavo.text.formats.marks import Marks

Tool = tuple[str, Any]  # name, schema of the parameters
_FIELD_PATTERNS = {"{id}": "/[a-zA-Z0-9]{9}/", "{index}": "/[0-9]+/"}


def grammar_text(
    format: Description,
    marks: Marks,
    tools: Sequence[Tool],
    *,
    text: bool,
    parallel: bool,
    content: str | None = None,
) -> str:
    """Calls of `tools` as the first of the format's ways writes them: at least one, and one only
    unless `parallel`. With `text`, an answer may also be free text, alone or before them, or where
    there is `content`, an expression of grammar text, this and no calls.

    Args:
        format: with its marker tokens as `marks` spells them.

    Raises:
        RequestError: the format cannot hold to a tool's parameters.
    """
    return _Writer(format, marks, tools, parallel, content).grammar(text)


class _Writer:
    def __init__(
        self,
        format: Description,
        marks: Marks,
        tools: Sequence[Tool],
        parallel: bool,
        content: str | None,
    ) -> None:
        self._format = format
        self._calls = format.calls[0]
        self._marks = marks
        self._tools = tools
        self._parallel = parallel
        self._content = content
        self._values = Values(self._calls, marks)
        self._lines: list[str] = []

    def grammar(self, text: bool) -> str:
        answer = self._with_text() if text else self._row()
        lines = [f"start: {self._lead()} {answer}", *self._lines, *self._values.lines]
        return "\n".join(lines) + "\n"

    def _lead(self) -> str:
        """Reasoning that is not said by `Thinking`, since it may come again later."""
        if self._format.reasoning is None or not self._format.reopens:
            return ""
        opens, closes = map(self._literal, self._format.reasoning)
        self._lines.append("REASONING: /(?s:.*)/")
        return f"({opens} REASONING {closes} {self._literal(self._format.resumes)})?"

    def _with_text(self) -> str:
        """Free text, which cannot begin a call, or calls, behind text where the format has that."""
        first, answers = self._calls.first, self._literal(self._format.answers)
        if self._content is not None:
            calls = f"| {self._row()}" if self._tools else ""
            return f"({answers} {self._content} {calls})"
        if self._calls.anchored:
            char = pattern(first[:1] or "{")
            self._lines.append(rf"FREE: /\s*([^\s{char}](?s:.*))?/")
            return f"({answers} FREE | {self._row()})"
        marker = first[0] in self._marks.texts
        trigger = "" if marker else re.split("[\ud800-\udfff]", self._calls.opens or first)[0]
        spelled = pattern(self._marks.texts[first[0]] if marker else trigger)
        self._lines.append(f"FREE: ~/(?s:.*){spelled}(?s:.*)/")
        if answers:
            return f"({answers} FREE | {self._row()})"
        if marker:
            return f"FREE ({self._row()})?"
        self._lines.append(f"UNTIL: (~/(?s:.*){spelled}(?s:.+)/) & /(?s:.*){spelled}/")
        return f"(FREE | UNTIL {self._row(trigger)})"

    def _row(self, skipped: str = "") -> str:
        """Calls in a row, but for the text that has been written already."""
        calls = self._calls
        opens = self._literal(calls.opens.removeprefix(skipped))
        lead, head = skipped.removeprefix(calls.opens), self._head
        first = self._any_call("call", head.removeprefix(lead))
        more = ""
        if self._parallel and calls.between is not None:
            # One lexeme with the literal behind it, which may begin as what closes the row does.
            more = f"({self._any_call('more', calls.between + head)})*"
        return f"{opens} {first} {more} {self._literal(calls.closes)}"

    @property
    def _head(self) -> str:
        """The literal that a call begins with."""
        first = self._calls.parts[0]
        return "" if first in FIELDS else first

    def _any_call(self, rule: str, head: str) -> str:
        """A rule for a call of any of the tools, that begins with `head`."""
        bodies = [
            " ".join(filter(None, [self._literal(head), *self._rest(name, schema)]))
            for name, schema in self._tools
        ]
        self._lines.append(f"{rule}: " + "\n  | ".join(bodies))
        return rule

    def _rest(self, name: str, schema: Any) -> list[str]:
        """A call behind its head."""
        parts = self._calls.parts[1 if self._head else 0 :]
        return [self._part(part, name, schema or NO_PARAMETERS) for part in parts]

    def _part(self, part: str, name: str, schema: Any) -> str:
        if part not in FIELDS:
            return self._literal(part)
        if part == "{name}":
            return quoted(name)
        if part == "{arguments}":
            return self._values.arguments(name, schema)
        return _object(self._calls, name, schema) if part == "{call}" else _FIELD_PATTERNS[part]

    def _literal(self, literal: str) -> str:
        return literal_text(literal, self._marks)


def _object(calls: Calls, name: str, schema: Any) -> str:
    """The JSON object that is a whole call."""
    key, arguments = map(quoted, calls.keys[:2])
    head = f"{{{key}: {quoted(name)}, {arguments}: "
    return f'{quoted(head)} {as_json(schema)} "}}"'
