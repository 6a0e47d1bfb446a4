"""What a request says of an answer's shape, and which answers have it."""

from __future__ import annotations

import json

import pytest

from octavo.base.errors import RequestError
from octavo.base.structured import Marker, StructuredOutputsParams, Thinking
from octavo.grammar.compile import compile_structure
from octavo.grammar.rules import Grammar
from tests.grammar.bytewise import CALL, DONE, NAMES, accepts

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def compiled(thinking: Thinking | None = None, **structure: object) -> Grammar:
    return compile_structure(StructuredOutputsParams(**structure), thinking, NAMES.get)


def tag(**format: object) -> dict[str, object]:
    return {"structural_tag": {"type": "structural_tag", "format": format}}


@pytest.mark.parametrize(
    ("structure", "answer", "right"),
    [
        ({"json": POINT}, '{"x": 1, "y": -2}', True),
        ({"json": json.dumps(POINT)}, '{\n  "x": 1,\r\n\t"y": -2\n}', True),
        ({"json": POINT}, '{"x": 1,  "y": 2}', False),
        ({"json": POINT}, '{"x": 1,' + "\n" * 2 + '"y": 2}', False),
        ({"json": POINT}, ' {"x": 1, "y": 2}', False),
        ({"json": POINT, "disable_any_whitespace": True}, '{"x":1,"y":2}', True),
        ({"json": POINT, "disable_any_whitespace": True}, '{"x": 1,"y":2}', False),
        ({"json": POINT, "whitespace_pattern": "[ ]{0,2}"}, '{  "x":1 ,"y":2}', True),
        ({"json": POINT, "whitespace_pattern": "[ ]{0,2}"}, '{\n"x":1,"y":2}', False),
        ({"json": True}, "[1, null]", True),
        ({"json_object": True}, '{"a": [1, {"b": null}]}', True),
        ({"json_object": True}, "[1]", False),
        ({"regex": "^[a-c]+$"}, "abc", True),
        ({"regex": "[a-c]+"}, "abcd", False),
        ({"regex": "(?!aa)[a-c]+"}, "aab", False),
        ({"regex": "a?"}, "", True),
        ({"choice": ["a", "ab", "été", "x" * 200]}, "ab", True),
        ({"choice": ["a", "ab", "été", "x" * 200]}, "x" * 200, True),
        ({"choice": ["a", "ab", "été", "x" * 200]}, "x" * 64, False),
        ({"choice": ["ab"]}, "a", False),
        ({"grammar": 'start: "a"+ %json {"enum": [1]}'}, "aa1", True),
        ({"grammar": 'root ::= "a"+ | "(" root ")"'}, "((a))", True),
    ],
)
def test_answers_of_a_structure(structure, answer, right):
    assert accepts(compiled(**structure), answer) == right


FUNCTIONS = [
    {"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": POINT}, "end": "</f>"},
    {"begin": "<f=b>", "content": {"type": "any_text"}, "end": "</f>"},
]
TRIGGERED = {"type": "triggered_tags", "triggers": ["<f="], "tags": FUNCTIONS}
OLDER = {
    "structures": [{"begin": "<f=a>", "schema": POINT, "end": "</f>"}],
    "triggers": ["<f="],
}
WORD = {"type": "regex", "pattern": "[a-z]*"}


@pytest.mark.parametrize(
    ("structure", "answer", "right"),
    [
        ({"structural_tag": OLDER}, "no call <f and no more", True),
        (
            {"structural_tag": OLDER},
            'so <f=a>{"x": 1, "y": 2}</f> and <f=a>{"x":1,"y":2}</f>',
            True,
        ),
        ({"structural_tag": OLDER}, "so <f=b>", False),
        ({"structural_tag": OLDER}, 'so <f=a>{"x": 1}</f>', False),
        ({"structural_tag": OLDER | {"type": "structural_tag"}}, "", True),
        (tag(**TRIGGERED), "so <f=b>any < / text</f> then <f=b></f>.", True),
        (tag(**TRIGGERED), "so <f=b>any", False),
        (tag(**TRIGGERED, stop_after_first=True), "so <f=b>x</f>", True),
        (tag(**TRIGGERED, stop_after_first=True), "so <f=b>x</f> then", False),
        (tag(**TRIGGERED, stop_after_first=True), "none", True),
        (tag(**TRIGGERED, at_least_one=True), "<f=b>x</f> then", True),
        (tag(**TRIGGERED, at_least_one=True), "so <f=b>x</f>", False),
        (tag(**TRIGGERED, at_least_one=True, stop_after_first=True), "<f=b>x</f>", True),
        (tag(**TRIGGERED, at_least_one=True, stop_after_first=True), "<f=b>x</f>.", False),
        (tag(**TRIGGERED, excludes=["no"]), "yes", True),
        (tag(**TRIGGERED, excludes=["no"]), "not", False),
        (tag(type="const_string", value="yes"), "yes", True),
        (tag(type="any_text"), "anything\n", True),
        (tag(type="any_text", excludes=["<"]), "a<b", False),
        (tag(type="json_schema", json_schema=POINT), '{"x":1,"y":2}', True),
        (tag(type="grammar", grammar='root ::= "a" | "(" root ")"'), "(a)", True),
        (tag(type="or", elements=[WORD, {"type": "const_string", "value": "1"}]), "1", True),
        (tag(type="sequence", elements=[WORD, {"type": "any_text"}]), "abc 1", True),
        (tag(type="tag", begin="<", content=WORD, end=">"), "<ab>", True),
        (tag(type="tag", begin="<", content=WORD, end=""), "<ab", True),
        (
            tag(type="tag", begin="<", content={"type": "regex", "pattern": ".*"}, end=">"),
            "<a>b>",
            False,  # it ends where its end is whole for the first time
        ),
        (tag(type="tags_with_separator", tags=FUNCTIONS, separator=", "), "", True),
        (
            tag(type="tags_with_separator", tags=FUNCTIONS, separator=", "),
            '<f=b>x</f>, <f=a>{"x":1,"y":2}</f>',
            True,
        ),
        (
            tag(type="tags_with_separator", tags=FUNCTIONS, separator=", ", at_least_one=True),
            "",
            False,
        ),
        (
            tag(type="tags_with_separator", tags=FUNCTIONS, separator=",", stop_after_first=True),
            "<f=b></f>,<f=b></f>",
            False,
        ),
        (
            tag(type="tag", begin="[", content=TRIGGERED, end="]"),
            "[so <f=b>]</f> and]",
            True,
        ),
    ],
)
def test_answers_of_structural_tags(structure, answer, right):
    assert accepts(compiled(**structure), answer) == right


TOKENS = Thinking(opens=Marker("<|call|>", CALL), closes=Marker("<|done|>", DONE), state="may")
TEXTS = Thinking(opens=Marker("<t>"), closes=Marker("</t>"), state="may")


@pytest.mark.parametrize(
    ("thinking", "state", "answer", "right"),
    [
        (TOKENS, "may", "ab", True),
        (TOKENS, "may", [CALL, "so {", DONE, "\n\nab"], True),
        (TOKENS, "may", [CALL, DONE, "ab"], True),
        (TOKENS, "may", ["so", DONE, "ab"], False),
        (TOKENS, "may", [CALL, "<|done|>", DONE, "ab"], False),
        (TOKENS, "open", ["so", DONE, "ab"], True),
        (TOKENS, "open", "ab", False),
        (TOKENS, "open", ["so", DONE], False),
        (TOKENS, "closed", "ab", True),
        (TOKENS, "closed", [CALL, "so", DONE, "ab"], False),
        (TEXTS, "may", "ab", True),
        (TEXTS, "may", "<t>so</</t>\nab", True),
        (TEXTS, "may", "<t>so", False),
        (TEXTS, "open", "so < ab</t>ab", True),
        (TEXTS, "open", "so</t>ab</t>ab", False),
    ],
)
def test_structure_begins_behind_the_reasoning(thinking, state, answer, right):
    thinking = Thinking(opens=thinking.opens, closes=thinking.closes, state=state)
    assert accepts(compiled(thinking, regex="[ab]+"), answer) == right


@pytest.mark.parametrize(
    ("structure", "field", "message"),
    [
        ({"json": "{"}, "json", "json is not JSON"),
        ({"json": "{} {}"}, "json", "more behind its end (at position 2)"),
        ({"json": '{"type": "a", "type": "b"}'}, "json", "the name 'type' is twice"),
        ({"json": '{"const": NaN}'}, "json", "NaN is no value"),
        ({"json": '{"const": 1e999}'}, "json", "the number 1e999 is too large"),
        ({"json": '{"const": ' + "9" * 5000 + "}"}, "json", "json is not JSON"),
        ({"json": "[" * 65 + "]" * 65}, "json", "nested more than 64 deep (at position 64)"),
        ({"regex": "a(?<=b)"}, "regex", "lookbehind"),
        ({"regex": "a^b"}, "regex", "no text matches it"),
        ({"regex": "(?=a)b"}, "regex", "no text matches it"),
        ({"grammar": 'start: "a'}, "grammar", "line 1, column 8"),
        ({"json_object": True, "whitespace_pattern": "("}, "whitespace_pattern", "closes"),
        ({"structural_tag": "{}"}, "structural_tag", "must have"),
        ({"structural_tag": "[]"}, "structural_tag", "must be a JSON object"),
        ({"structural_tag": {"structures": [{}]}}, "structural_tag", "begin, schema and end"),
        ({"structural_tag": {"structures": []}}, "structural_tag", "needs triggers"),
        (tag(type="token"), "structural_tag", "a format of the type 'token' is not supported"),
        (tag(type=[]), "structural_tag", "a format of the type [] is not supported"),
        (tag(type="regex"), "structural_tag", "regex needs pattern, of type str"),
        (tag(type="json_schema", json_schema=True, style="xml"), "structural_tag", "style of"),
        (tag(type="or", elements=[]), "structural_tag", "elements must be 1 to"),
        (tag(type="sequence", elements=[{"type": "any_text"}, WORD]), "structural_tag", "the last"),
        (
            tag(
                type="sequence",
                elements=[{"type": "or", "elements": [{"type": "any_text"}, WORD]}, WORD],
            ),
            "structural_tag",
            "the last",
        ),
        (tag(**TRIGGERED | {"triggers": ["<g="]}), "structural_tag", "exactly one trigger"),
        (tag(**TRIGGERED | {"triggers": ["<f=", "x"]}), "structural_tag", "begins no tag"),
        (tag(**TRIGGERED | {"triggers": [""]}), "structural_tag", "none of them empty"),
        (tag(**TRIGGERED | {"tags": []}), "structural_tag", "tags must be 1 to"),
        (tag(**TRIGGERED | {"tags": [1]}), "structural_tag", "must be an object, not 1"),
    ],
)
def test_what_is_wrong_names_its_field(structure, field, message):
    with pytest.raises(RequestError) as caught:
        compiled(**structure)
    assert message in str(caught.value)
    assert caught.value.field == field
