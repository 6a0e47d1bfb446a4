"""The JSON-Schema-Test-Suite, draft 2020-12: what is accepted is right on every instance.

An instance is accepted if its members can be put into an order that the grammar has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import pytest
from recogniser import accepts

from octavo.grammar.json_schema.compile import compile_schema
from octavo.grammar.json_schema.errors import SchemaError
from octavo.grammar.json_schema.formats import KNOWN
from octavo.grammar.regex import one_of, optional

SPACE = optional(one_of(" "))
ORDERS = 800  # of an instance's members, tried at most
REMOTES = "http://localhost:1234/"

# By file: cases that are right; of schemas that nothing satisfies; refused by keyword. For known
# formats one case each is narrower than the suite's: a text of another form is not written.
COUNTS: dict[str, tuple[int, int, dict[str, int]]] = {
    "additionalProperties": (21, 0, {}),
    "allOf": (28, 2, {}),
    "anchor": (8, 0, {}),
    "anyOf": (17, 1, {}),
    "boolean_schema": (9, 9, {}),
    "const": (54, 0, {}),
    "contains": (21, 0, {}),
    "content": (18, 0, {}),
    "default": (7, 0, {}),
    "defs": (0, 0, {"$ref": 2}),
    "dependentRequired": (20, 0, {}),
    "dependentSchemas": (16, 0, {"minProperties": 4}),
    "dynamicRef": (44, 0, {}),
    "enum": (45, 6, {}),
    "exclusiveMaximum": (4, 0, {}),
    "exclusiveMinimum": (4, 0, {}),
    "format": (133, 0, {}),
    "if-then-else": (30, 0, {}),
    "infinite-loop-detection": (2, 0, {}),
    "items": (29, 0, {}),
    "maxContains": (14, 0, {}),
    "maxItems": (6, 0, {}),
    "maxLength": (7, 0, {}),
    "maxProperties": (10, 0, {}),
    "maximum": (8, 0, {}),
    "minContains": (28, 0, {}),
    "minItems": (6, 0, {}),
    "minLength": (7, 0, {}),
    "minProperties": (10, 0, {}),
    "minimum": (11, 0, {}),
    "multipleOf": (10, 0, {"multipleOf": 1}),
    "not": (22, 18, {}),
    "oneOf": (24, 3, {}),
    "pattern": (12, 0, {}),
    "patternProperties": (25, 0, {}),
    "prefixItems": (11, 0, {}),
    "properties": (28, 0, {}),
    "propertyNames": (22, 0, {}),
    "ref": (76, 1, {"$ref": 2}),
    "refRemote": (31, 0, {}),
    "required": (18, 0, {}),
    "type": (80, 0, {}),
    "unevaluatedItems": (71, 0, {}),
    "unevaluatedProperties": (108, 0, {"oneOf": 21}),
    "uniqueItems": (33, 0, {"uniqueItems": 36}),
    "vocabulary": (0, 0, {"$schema": 5}),
}


@pytest.fixture(scope="module")
def suite(shared: Path) -> Path:
    return shared / "data" / "json-schema-test-suite"


@pytest.fixture(scope="module")
def remotes(suite: Path) -> dict[str, Any]:
    files = (suite / "remotes").rglob("*.json")
    return {
        REMOTES + str(file.relative_to(suite / "remotes")): json.loads(file.read_text())
        for file in files
    }


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_suite(name: str, suite: Path, remotes: dict[str, Any]) -> None:
    groups = json.loads((suite / "draft2020-12" / f"{name}.json").read_text())
    right, unsatisfiable, refused = 0, 0, Counter[str]()
    for group in groups:
        cases = group["tests"]
        try:
            grammar = compile_schema(group["schema"], SPACE, remotes)
        except SchemaError as error:
            if "no value satisfies" in str(error):
                unsatisfiable += len(cases)
                assert not any(case["valid"] for case in cases), group["description"]
            else:
                refused[_keyword(error)] += len(cases)
            continue
        for case in cases:
            accepted = any(accepts(grammar, text) for text in islice(_texts(case["data"]), ORDERS))
            if _narrower(group["schema"], case):
                assert not accepted
            else:
                assert accepted == case["valid"], (group["description"], case["description"])
            right += 1
    assert (right, unsatisfiable, dict(refused)) == COUNTS[name]


def test_every_file_is_counted(suite: Path) -> None:
    files = {file.stem for file in (suite / "draft2020-12").glob("*.json")}
    assert files == set(COUNTS)
    right, unsatisfiable, refused = zip(*COUNTS.values(), strict=True)
    total = sum(right) + sum(unsatisfiable)
    assert total + sum(sum(by.values()) for by in refused) == 1299
    assert total > 0.9 * 1299


def _keyword(error: SchemaError) -> str:
    problem = str(error).removeprefix(f"json: {error.pointer}: ")
    return problem.split()[0].strip(":")


def _narrower(schema: Any, case: dict[str, Any]) -> bool:
    """Whether a text is only not of its format, which the suite allows."""
    known = isinstance(schema, dict) and schema.get("format") in KNOWN
    return known and "only an annotation" in case["description"]


def _texts(value: Any) -> Iterator[bytes]:
    return (json.dumps(one, ensure_ascii=False).encode() for one in _orders(value))


def _orders(value: Any) -> Iterator[Any]:
    """The value with its members in any order, within all of its values too."""
    if isinstance(value, dict):
        for order in permutations(value.items()):
            for inner in product(*(list(_orders(one)) for _, one in order)):
                yield dict(zip((name for name, _ in order), inner, strict=True))
    elif isinstance(value, list):
        yield from (list(inner) for inner in product(*(list(_orders(one)) for one in value)))
    else:
        yield value
