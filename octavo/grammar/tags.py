"""Structural tags: free text with parts that have a shape, as vLLM and XGrammar write them.

Formats are described in XGrammar's documentation of structural tags. What is not exact here is
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.base.errors import RequestError
from octavo.grammar.free_text import ends_with, text_up_to, text_without
from octavo.grammar.joined import Joined, choice, lexeme, seq, spelled
from octavo.grammar.pattern import parse_pattern
from octavo.grammar.regex import ANY_TEXT
from octavo.grammar.rules import Grammar, Lexeme, Node, Repeat
from octavo.grammar.strict_json import load

MAX_TAGS = 1024  # of one format
_FIELDS: Mapping[
    str, Mapping[str, type]
] = {  # of each format, besides "type"; with the type of what must be there
    "const_string": {"value": str},
    "json_schema": {"json_schema": object},
    "regex": {"pattern": str},
    "grammar": {"grammar": str},
    "any_text": {"excludes?": list},
    "sequence": {"elements": list},
    "or": {"elements": list},
    "tag": {"begin": str, "content": dict, "end": str},
    "triggered_tags": {
        "triggers": list,
        "tags": list,
        "at_least_one?": bool,
        "stop_after_first?": bool,
        "excludes?": list,
    },
    "tags_with_separator": {
        "tags": list,
        "separator": str,
        "at_least_one?": bool,
        "stop_after_first?": bool,
    },
}
Format = Mapping[str, Any]


def parse_tags(
    text: str, json: Callable[[Any], Grammar], grammar: Callable[[str], Grammar]
) -> Grammar:
    """The grammar of `{"type": "structural_tag", "format": ...}`, or of the older form with
    `structures` and `triggers`.

    Args:
        json: the grammar of a JSON Schema.
        grammar: that of the text of a grammar.

    Raises:
        RequestError: it is not JSON, or a format is wrong or not supported.
    """
    tags = _Tags(json, grammar)
    start = tags.node(_format_of(load(text, "structural_tag")), "")
    return Grammar(start, tags.joined.rules)


def _wrong(message: str) -> RequestError:
    return RequestError(f"structural_tag: {message}", "structural_tag")


def _format_of(value: Any) -> Format:
    if not isinstance(value, dict):
        raise _wrong("it must be a JSON object")
    if "structures" in value:
        return _older(value)
    if value.get("type") != "structural_tag" or not isinstance(value.get("format"), dict):
        raise _wrong('it must have "type": "structural_tag" and a "format"')
    found: Format = value["format"]
    return found


def _older(value: Mapping[str, Any]) -> Format:
    """`{"structures": [{"begin", "schema", "end"}], "triggers": [...]}`"""
    structures = value["structures"]
    if not isinstance(structures, list) or not all(isinstance(one, dict) for one in structures):
        raise _wrong("structures must be a list of objects")
    for one in structures:
        if not {"begin", "end"} <= one.keys() <= {"begin", "end", "schema", "structural_tag"}:
            raise _wrong("a structure has begin, schema and end")
    tags = [
        {
            "begin": one["begin"],
            "content": {"type": "json_schema", "json_schema": one.get("schema", True)},
            "end": one["end"],
        }
        for one in structures
    ]
    return {"type": "triggered_tags", "triggers": value.get("triggers"), "tags": tags}


def _check(format: Any, kind: str) -> None:
    """Its fields are those that a format of this kind has."""
    if not isinstance(format, dict):
        raise _wrong(f"a format must be an object, not {format!r:.40}")
    fields = _FIELDS[kind]
    for field in format:
        if field != "type" and field not in fields and f"{field}?" not in fields:
            raise _wrong(f"{field} of {kind} is not supported")
    for field, wanted in fields.items():
        name, is_optional = field.rstrip("?"), field.endswith("?")
        if name not in format and is_optional:
            continue
        if name not in format or not isinstance(format[name], wanted):
            raise _wrong(f"{kind} needs {name}, of type {wanted.__name__}")


def _texts(format: Format, name: str) -> Sequence[str]:
    found = format.get(name, [])
    if len(found) > MAX_TAGS or not all(isinstance(one, str) and one for one in found):
        raise _wrong(f"{name} must be at most {MAX_TAGS} texts, none of them empty")
    return tuple(found)


class _Tags:
    """Makes nodes of formats. `end` is the text behind a format, which its node has in it: of free
    text it is the end. "" is the end of the answer; None: one knows not what is behind."""

    def __init__(self, json: Callable[[Any], Grammar], grammar: Callable[[str], Grammar]) -> None:
        self.joined = Joined(json)
        self._grammar = grammar
        self._nodes: Mapping[str, Callable[[Format, str | None], Node]] = {
            "const_string": lambda format, end: spelled(format["value"] + (end or "")),
            "json_schema": self._json,
            "regex": self._regex,
            "grammar": self._embedded,
            "any_text": self._any_text,
            "sequence": self._sequence,
            "or": self._or,
            "tag": self._tag,
            "triggered_tags": self._triggered,
            "tags_with_separator": self._separated,
        }

    def node(self, format: Any, end: str | None) -> Node:
        kind = format.get("type") if isinstance(format, dict) else None
        if not isinstance(kind, str) or kind not in _FIELDS:
            raise _wrong(f"a format of the type {kind!r:.40} is not supported")
        _check(format, kind)
        if kind in ("any_text", "triggered_tags") and end is None:
            raise _wrong(f"{kind} needs the end of a tag behind it, or to be the last")
        return self._nodes[kind](format, end)

    def _json(self, format: Format, end: str | None) -> Node:
        return seq(self.joined.json(format["json_schema"]), spelled(end or ""))

    def _regex(self, format: Format, end: str | None) -> Node:
        regex = parse_pattern(format["pattern"], anchored=True)
        return lexeme(ends_with(regex, end) if end else regex)

    def _embedded(self, format: Format, end: str | None) -> Node:
        return seq(self.joined.include(self._grammar(format["grammar"])), spelled(end or ""))

    def _any_text(self, format: Format, end: str | None) -> Node:
        excluded = _texts(format, "excludes")
        if end:
            return Lexeme(text_up_to(end, excluded))
        return Lexeme(text_without(excluded) if excluded else ANY_TEXT)

    def _sequence(self, format: Format, end: str | None) -> Node:
        *elements, last = _elements(format)
        return seq(*(self.node(element, None) for element in elements), self.node(last, end))

    def _or(self, format: Format, end: str | None) -> Node:
        return choice(*(self.node(one, end) for one in _elements(format)))

    def _tag(self, format: Format, end: str | None, skipped: int = 0) -> Node:
        """A tag, of which the first characters are written already."""
        begin = spelled(format["begin"][skipped:])
        if not format["end"]:
            return seq(begin, self.node(format["content"], end))
        return seq(begin, self.node(format["content"], format["end"]), spelled(end or ""))

    def _triggered(self, format: Format, end: str | None) -> Node:
        """Text; where it comes to a trigger, one of its tags; and so on."""
        triggers, tags = _texts(format, "triggers"), _tags(format)
        markers = (*triggers, *_texts(format, "excludes"), *((end,) if end else ()))
        free = Lexeme(text_up_to(end, markers) if end else text_without(markers))
        is_one, at_once = format.get("stop_after_first"), format.get("at_least_one")
        behind = end if is_one else None
        first = choice(*(self._tag(tag, behind) for tag in tags))
        parts = []
        for trigger in triggers:
            told = [self._tag(tag, behind, len(trigger)) for tag in _told(tags, triggers, trigger)]
            parts.append(seq(Lexeme(text_up_to(trigger, markers)), choice(*told)))
        if is_one:
            return first if at_once else choice(*parts, free)
        several = seq(Repeat(choice(*parts)), free)
        return seq(first, several) if at_once else several

    def _separated(self, format: Format, end: str | None) -> Node:
        is_one = format.get("stop_after_first")
        tag = choice(*(self._tag(tag, end if is_one else None) for tag in _tags(format)))
        behind = spelled(end or "")
        if is_one:
            return tag if format.get("at_least_one") else choice(tag, behind)
        several = seq(tag, Repeat(seq(spelled(format["separator"]), tag)))
        return seq(several if format.get("at_least_one") else Repeat(several, 0, 1), behind)


def _elements(format: Format) -> Sequence[Any]:
    found: Sequence[Any] = format["elements"]
    if not 1 <= len(found) <= MAX_TAGS:
        raise _wrong(f"elements must be 1 to {MAX_TAGS} formats")
    return found


def _tags(format: Format) -> Sequence[Format]:
    found: Sequence[Format] = format["tags"]
    if not 1 <= len(found) <= MAX_TAGS:
        raise _wrong(f"tags must be 1 to {MAX_TAGS} tags")
    for tag in found:
        _check(tag, "tag")
    return found


def _told(tags: Sequence[Format], triggers: Sequence[str], trigger: str) -> list[Format]:
    """The tags that a trigger begins, which no other one may begin."""
    for tag in tags:
        begun = [one for one in triggers if tag["begin"].startswith(one)]
        if len(begun) != 1:
            raise _wrong(f"{tag['begin']!r:.40} must begin with exactly one trigger")
    found = [tag for tag in tags if tag["begin"].startswith(trigger)]
    if not found:
        raise _wrong(f"the trigger {trigger!r:.40} begins no tag")
    return found
