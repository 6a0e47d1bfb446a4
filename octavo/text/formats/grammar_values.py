"""Arguments of a call as grammar text, in the syntax of a format: members in the order of the
schema's properties, each at most once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from octavo.base.errors import RequestError
from octavo.text.formats.description import Calls
from octavo.text.formats.literals import types_of
from octavo.text.formats.marks import Marks

NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
_NOTES = {"title", "description", "default", "examples", "$schema", "$comment"}
_OBJECT = {*_NOTES, "type", "properties", "required", "additionalProperties", "$defs"}
_STRING = {*_NOTES, "type", "enum", "const"}
_SCALAR = {"number", "integer", "boolean", "null"}


class Values:
    """Writes expressions, and the rules and terminals that they need."""

    def __init__(self, calls: Calls, marks: Marks) -> None:
        self.lines: list[str] = []
        self._calls = calls
        self._marks = marks

    def arguments(self, tool: str, schema: Any) -> str:
        """Of `tool`, whose parameters have this schema.

        Raises:
            RequestError: the syntax cannot hold to the schema.
        """
        syntax = self._calls.syntax
        if syntax == "json":
            return as_json(schema)
        self._check(tool, schema, _OBJECT)
        root = {key: schema[key] for key in ("$defs",) if key in schema}
        members = {
            name: self._member(f"{tool}.{name}", name, one, root)
            for name, one in (schema.get("properties") or {}).items()
        }
        separator = {"python": ", ", "gemma": ",", "tagged": ""}[syntax]
        written = self._row(members, schema.get("required") or (), separator)
        return f'"{{" {written} "}}"' if syntax == "gemma" else written

    def _member(self, where: str, name: str, schema: Any, root: Mapping[str, Any]) -> str:
        calls = self._calls
        if calls.syntax == "python":
            return f"{quoted(name + '=')} {self._python(schema, root)}"
        if calls.syntax == "gemma":
            return f"{quoted(name + ':')} {self._gemma(where, schema)}"
        opens, closes, value_opens, value_closes = calls.tags
        head = literal_text(opens + name + closes + value_opens, self._marks)
        return f"{head} {self._raw(where, schema, value_closes)}"

    def _python(self, schema: Any, root: Mapping[str, Any]) -> str:
        types = types_of(schema)
        if types == {"boolean"} and "enum" not in schema and "const" not in schema:
            return '("True" | "False")'
        return '"None"' if types == {"null"} else as_json({**schema, **root})

    def _raw(self, where: str, schema: Any, closes: str) -> str:
        """A value without quotes, with what closes it."""
        types = types_of(schema)
        if not types or ("string" in types and types != {"string"}):
            raise self._refusal(where, "needs one type, or types without string,")
        if types != {"string"}:
            return f"{as_json(schema)} {literal_text(closes, self._marks)}"
        return self._string(where, schema, closes)

    def _string(self, where: str, schema: Any, closes: str) -> str:
        self._check(where, schema, _STRING)
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return f"({' | '.join(map(quoted, values))}) {literal_text(closes, self._marks)}"
        return self._free(closes)

    def _free(self, closes: str) -> str:
        """Any text up to the first `closes`, which is part of it."""
        word = closes.strip()
        edge, rest = closes.partition(word)[0], closes.partition(word)[2]
        if word[0] in self._marks.texts:
            spelled = pattern(self._marks.texts[word[0]])
            terminal = self._terminal(f"~/(?s:.*){spelled}(?s:.*)/")
            return f"{terminal} {literal_text(closes, self._marks)}"
        end = pattern(word)
        terminal = self._terminal(f"(~/(?s:.*){end}(?s:.+)/) & /(?s:.*){pattern(edge)}{end}/")
        return f"{terminal} {literal_text(rest, self._marks)}"

    def _gemma(self, where: str, schema: Any) -> str:
        types = types_of(schema)
        quote = self._calls.tags[2]
        if types == {"string"}:
            return f"{literal_text(quote, self._marks)} {self._string(where, schema, quote)}"
        if types and types <= _SCALAR | {"integer"}:
            return as_json(schema)
        if types == {"array"}:
            self._check(where, schema, {*_NOTES, "type", "items"})
            item = self._gemma(f"{where}[]", schema.get("items"))
            return f'"[" ({item} ("," {item})*)? "]"'
        if types == {"object"}:
            self._check(where, schema, _OBJECT)
            members = {
                name: f"{quoted(name + ':')} {self._gemma(f'{where}.{name}', one)}"
                for name, one in (schema.get("properties") or {}).items()
            }
            return f'"{{" {self._row(members, schema.get("required") or (), ",")} "}}"'
        raise self._refusal(where, "needs one type")

    def _row(self, members: Mapping[str, str], required: Any, separator: str) -> str:
        """Members in order, those that are not required at will."""
        if not separator:
            return " ".join(m if name in required else f"({m})?" for name, m in members.items())
        tail, may_be_empty = "", True
        begins: list[str] = []
        for name, member in reversed(list(members.items())):
            begin = f"{member} {tail}"
            if name in required:
                begins, may_be_empty = [], False
            begins.append(begin)
            more = f"({quoted(separator)} {member})"
            tail = self._rule(f"{more if name in required else more + '?'} {tail}")
        return f"({' | '.join(begins)}){'?' * may_be_empty}" if begins else ""

    def _rule(self, body: str) -> str:
        name = f"rest_{len(self.lines)}"
        self.lines.append(f"{name}: {body}")
        return name

    def _terminal(self, body: str) -> str:
        """Of equal ones, the first."""
        for line in self.lines:
            name, _, known = line.partition(": ")
            if known == body:
                return name
        name = f"VALUE_{len(self.lines)}"
        self.lines.append(f"{name}: {body}")
        return name

    def _check(self, where: str, schema: Any, known: set[str]) -> None:
        """That a schema says nothing else than what can be held to."""
        if not isinstance(schema, dict):
            raise self._refusal(where, "needs a schema")
        if unknown := sorted(schema.keys() - known):
            raise self._refusal(where, f"cannot hold to {', '.join(unknown)}")
        if schema.get("additionalProperties"):
            raise self._refusal(where, "cannot hold to additionalProperties")

    def _refusal(self, where: str, what: str) -> RequestError:
        return RequestError(
            f"tools: {where} {what} in this model's format of calls; do without strict and "
            "with tool_choice auto",
            "tools",
        )


def as_json(schema: Any) -> str:
    return f"%json {json.dumps(schema, ensure_ascii=False)}"


def quoted(text: str) -> str:
    """A text as grammars write it."""
    return json.dumps(text, ensure_ascii=False)


def pattern(text: str) -> str:
    """A text within a pattern between slashes."""
    return "".join(_escaped(char) for char in text)


def _escaped(char: str) -> str:
    if char == "\n":
        return r"\n"
    return f"\\{char}" if char in r".^$*+?()[]{}|\/" else char


def literal_text(literal: str, marks: Marks) -> str:
    """A literal with its marker tokens, by id; "" of an empty one."""
    parts = re.findall(r"[\ud800-\udfff]|[^\ud800-\udfff]+", literal)
    return " ".join(
        f"<[{marks.ids[part]}]>" if part in marks.ids else quoted(part) for part in parts
    )
