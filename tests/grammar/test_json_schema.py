"""Grammars of many schemas: what they derive validates, and what is valid they accept."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from recogniser import accepts
from sampler import Sampler
from schemas import SCHEMAS

from octavo.grammar.json_schema.compile import compile_schema
from octavo.grammar.json_schema.errors import SchemaError
from octavo.grammar.regex import EMPTY, one_of, optional

SPACE = optional(one_of(" "))
SAMPLES = 2
STRING = {"type": "string"}


def test_there_are_many_schemas() -> None:
    assert len(SCHEMAS) >= 300
    assert len({name for name, _ in SCHEMAS}) == len(SCHEMAS)


@pytest.mark.parametrize(("name", "schema"), SCHEMAS, ids=[name for name, _ in SCHEMAS])
def test_texts_validate(name: str, schema: Any) -> None:
    sampler, rng = Sampler(compile_schema(schema, SPACE)), random.Random(name)
    checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for _ in range(SAMPLES):
        checker.validate(json.loads(sampler.text(rng)))


ACCEPTED = [
    ({"properties": {"b": True, "a": True}}, '{"b": 1, "a": 2, "c": 3}', True),
    ({"properties": {"b": True, "a": True}}, '{"a": 2, "b": 1}', False),  # not their order
    ({"required": ["x"], "properties": {"y": True}}, '{"y": 1, "x": 2}', True),
    ({"type": "integer"}, "1.0", True),
    ({"type": "integer"}, "1.5", False),
    ({"type": "integer"}, "01", False),
    ({"type": "number"}, "1e+16", True),
    ({"type": "number"}, "9e999", False),  # no double
    ({"exclusiveMaximum": 1}, "0.9999999999999999", True),
    ({"exclusiveMaximum": 1}, "0.99999999999999999", False),  # reads as 1
    ({"exclusiveMinimum": 0}, "0.000001", True),
    ({"maximum": -0.25}, "-0.25", True),
    ({"maximum": -0.25}, "-0.249", False),
    ({"multipleOf": 0.01}, "19.90", True),
    ({"multipleOf": 0.01}, "19.901", False),
    ({"maxLength": 2}, '"\\n\U0001f600"', True),  # an escape is one character
    ({"maxLength": 2}, '"\\n\\n\\n"', False),
    (STRING, '"a/\u00e9"', True),
    (STRING, '"\n"', False),  # a control that is not escaped
    ({"const": 'say "hi"'}, '"say \\"hi\\""', True),
    ({"minProperties": 1}, "{}", False),
    ({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}, "[2, 1]", True),
    ({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}, "[1, 1.0]", False),
    ({"format": "date"}, '"2024-02-29"', True),
    ({"format": "date"}, '"2023-02-29"', False),
    ({"format": "made-up"}, '"anything"', True),
    ({"not": {"required": ["a"]}}, '{"a": 1}', False),
    ({"type": "object"}, " {}", False),
    ({"type": "object"}, '{ "a" : [ 1 , 2 ] }', True),
]


@pytest.mark.parametrize(("schema", "written", "accepted"), ACCEPTED)
def test_accepts(schema: Any, written: str, accepted: bool) -> None:
    assert accepts(compile_schema(schema, SPACE), written.encode()) == accepted


def test_no_whitespace() -> None:
    grammar = compile_schema({"type": "array"}, EMPTY)
    assert accepts(grammar, b'[1,{"a":2}]')
    assert not accepts(grammar, b"[1, 2]")


def _nested(depth: int) -> Any:
    return {"properties": {"a": _nested(depth - 1)}} if depth else True


REFUSED = [
    ({"properties": {"a": {"uniqueItems": True}}}, "#/properties/a", "uniqueItems"),
    ({"minProperties": 2}, "#", "minProperties"),
    ({"multipleOf": 7}, "#", "multipleOf"),
    ({"items": [{}]}, "#", "items"),
    ({"dependencies": {}}, "#", "dependencies"),
    ({"type": "text"}, "#", "type"),
    ({"properties": {"a/b": {"type": 3}}}, "#/properties/a~1b", "type"),
    ({"minLength": -1}, "#", "minLength"),
    ({"exclusiveMinimum": True}, "#", "exclusiveMinimum"),
    ({"pattern": "("}, "#", "pattern"),
    ({"$ref": "https://example.com/x"}, "#", "$ref"),
    ({"$ref": "#"}, "#", "$ref"),
    ({"$schema": "https://example.com/own"}, "#", "$schema"),
    ({"allOf": 3}, "#", "allOf"),
    ({"enum": "a"}, "#", "enum"),
    ({"required": "a"}, "#", "required"),
    ({"properties": {"a": 3}}, "#/properties/a", "schema"),
    ({"oneOf": [{"minimum": 1}, {"minimum": 0}], "maximum": -1}, "#", "no value"),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "#", "no value"),
    ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "#", "no value"),
    (False, "#", "no value"),
    (_nested(40), "#", "nested"),
]


@pytest.mark.parametrize(("schema", "pointer", "problem"), REFUSED)
def test_refuses(schema: Any, pointer: str, problem: str) -> None:
    with pytest.raises(SchemaError) as refused:
        compile_schema(schema, SPACE)
    assert refused.value.pointer == pointer
    assert problem in str(refused.value)
    assert refused.value.field == "json"


def test_compiling_is_quick() -> None:
    properties = {f"name_{i}": {"type": "integer", "minimum": 0} for i in range(20)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    times = []
    for _ in range(5):
        start = time.process_time()
        compile_schema(schema, SPACE)
        times.append(time.process_time() - start)
    assert min(times) < 0.05  # some milliseconds where nothing else runs
