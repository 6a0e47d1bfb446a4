"""Schemas of many kinds, all of which have a grammar: `SCHEMAS`, by name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

Schema = Any


def _object(properties: dict[str, Schema], *optional: str, **more: Any) -> Schema:
    """All properties required but `optional` ones, no others, as strict schemas are written."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        **more,
    }


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
NULL = {"type": "null"}
ADDRESS = _object(
    {
        "street": {"type": "string", "maxLength": 40},
        "city": STRING,
        "zip": {"type": "string", "pattern": "^[0-9]{5}(-[0-9]{4})?$"},
        "country": {"enum": ["AT", "CH", "DE", "FR", "US"]},
    }
)

WRITTEN: dict[str, Schema] = {
    "anything": True,
    "anything object": {"type": "object"},
    "anything array": {"type": "array"},
    "person": _object({"name": STRING, "age": {"type": "integer", "minimum": 0, "maximum": 130}}),
    "person with notes": _object({"name": STRING, "nickname": STRING, "age": INTEGER}, "nickname"),
    "all optional": _object({"a": STRING, "b": INTEGER, "c": BOOLEAN}, "a", "b", "c"),
    "nullable": _object({"value": {"type": ["string", "null"]}, "note": {"anyOf": [NUMBER, NULL]}}),
    "address": ADDRESS,
    "customer": _object(
        {"id": {"type": "string", "format": "uuid"}, "home": ADDRESS, "work": ADDRESS}, "work"
    ),
    "order": _object(
        {
            "order_id": {"type": "string", "pattern": "^ORD-[0-9]{6}$"},
            "placed": {"type": "string", "format": "date-time"},
            "lines": _list(
                _object(
                    {
                        "sku": {"type": "string", "pattern": "^[A-Z]{3}[0-9]+$"},
                        "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
                        "price": {"type": "number", "exclusiveMinimum": 0},
                    }
                ),
                minItems=1,
                maxItems=20,
            ),
            "discount": {"type": "number", "minimum": 0, "maximum": 0.5},
        },
        "discount",
    ),
    "weather call": _object(
        {"location": STRING, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, "unit"
    ),
    "weather answer": _object(
        {
            "temperature": {"type": "number", "minimum": -90, "maximum": 60},
            "humidity": {"type": "integer", "minimum": 0, "maximum": 100},
            "sky": {"enum": ["clear", "cloudy", "rain", "snow"]},
            "wind": _object({"speed": {"type": "number", "minimum": 0}, "degrees": INTEGER}),
        }
    ),
    "search call": _object(
        {
            "query": {"type": "string", "minLength": 1},
            "top_k": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
            "filters": {"type": "object", "additionalProperties": STRING},
        },
        "filters",
    ),
    "math reasoning": _object(
        {"steps": _list(_object({"explanation": STRING, "output": STRING})), "final_answer": STRING}
    ),
    "entities": _object(
        {
            "people": _list(STRING),
            "places": _list(STRING),
            "dates": _list({"type": "string", "format": "date"}),
        }
    ),
    "sentiment": _object(
        {
            "label": {"enum": ["positive", "negative", "neutral"]},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        }
    ),
    "moderation": _object(
        {
            "flagged": BOOLEAN,
            "categories": {"type": "object", "additionalProperties": BOOLEAN},
            "scores": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
        }
    ),
    "linked list": {
        "$defs": {
            "node": _object({"value": NUMBER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, NULL]}})
        },
        "$ref": "#/$defs/node",
    },
    "tree": _object({"label": STRING, "children": _list({"$ref": "#"})}),
    "binary tree": _object({"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "left", "right"),
    "user interface": {
        "$defs": {
            "element": _object(
                {
                    "type": {"enum": ["div", "button", "header", "section", "field", "form"]},
                    "label": STRING,
                    "children": _list({"$ref": "#/$defs/element"}),
                    "attributes": _list(_object({"name": STRING, "value": STRING})),
                }
            )
        },
        "$ref": "#/$defs/element",
    },
    "mutual references": {
        "$defs": {
            "folder": _object({"name": STRING, "entries": _list({"$ref": "#/$defs/entry"})}),
            "file": _object({"name": STRING, "size": {"type": "integer", "minimum": 0}}),
            "entry": {"anyOf": [{"$ref": "#/$defs/folder"}, {"$ref": "#/$defs/file"}]},
        },
        "$ref": "#/$defs/folder",
    },
    "expression": {
        "$defs": {
            "expression": {
                "oneOf": [
                    {"type": "number"},
                    _object(
                        {
                            "op": {"enum": ["+", "-", "*", "/"]},
                            "left": {"$ref": "#/$defs/expression"},
                            "right": {"$ref": "#/$defs/expression"},
                        }
                    ),
                ]
            }
        },
        "$ref": "#/$defs/expression",
    },
    "json in json schema": {
        "$defs": {
            "json": {
                "anyOf": [
                    {"type": ["null", "boolean", "number", "string"]},
                    _list({"$ref": "#/$defs/json"}),
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}},
                ]
            }
        },
        "$ref": "#/$defs/json",
    },
    "shapes by const": {
        "oneOf": [
            _object({"kind": {"const": "circle"}, "radius": {"type": "number", "minimum": 0}}),
            _object({"kind": {"const": "square"}, "side": {"type": "number", "minimum": 0}}),
            _object({"kind": {"const": "polygon"}, "points": _list(_list(NUMBER, maxItems=2))}),
        ]
    },
    "events by enum": {
        "oneOf": [
            _object({"event": {"enum": ["created", "updated"]}, "by": STRING}),
            _object({"event": {"enum": ["deleted"]}, "at": {"type": "string", "format": "time"}}),
            {"type": "string"},
        ]
    },
    "open branches": {
        "type": "object",
        "oneOf": [
            {"properties": {"a": INTEGER}, "required": ["a"]},
            {"properties": {"b": INTEGER}, "required": ["b"]},
        ],
    },
    "tool choice": {
        "anyOf": [
            _object({"name": {"const": "read"}, "arguments": _object({"path": STRING})}),
            _object(
                {
                    "name": {"const": "write"},
                    "arguments": _object({"path": STRING, "text": STRING}),
                }
            ),
            _object({"name": {"const": "stop"}, "arguments": _object({})}),
        ]
    },
    "all of, merged": {
        "allOf": [
            {"type": "object", "properties": {"id": INTEGER}, "required": ["id"]},
            {"properties": {"name": STRING}, "required": ["name"]},
        ],
        "unevaluatedProperties": False,
    },
    "base and extension": {
        "$defs": {"base": {"type": "object", "properties": {"id": INTEGER}, "required": ["id"]}},
        "$ref": "#/$defs/base",
        "properties": {"extra": STRING},
        "unevaluatedProperties": False,
    },
    "payment": {
        "type": "object",
        "properties": {"card": {"type": "string", "pattern": "^[0-9]{16}$"}, "billing": STRING},
        "additionalProperties": False,
        "dependentRequired": {"card": ["billing"]},
    },
    "dependent schema": {
        "type": "object",
        "properties": {"card": STRING, "cvc": STRING},
        "dependentSchemas": {
            "card": {"required": ["cvc"], "properties": {"cvc": {"pattern": "^[0-9]{3}$"}}}
        },
        "additionalProperties": False,
    },
    "country and code": {
        "type": "object",
        "properties": {"country": {"enum": ["US", "NL"]}, "code": STRING},
        "required": ["country", "code"],
        "additionalProperties": False,
        "if": {"properties": {"country": {"const": "US"}}},
        "then": {"properties": {"code": {"pattern": "^[0-9]{5}$"}}},
        "else": {"properties": {"code": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}},
    },
    "dictionary of numbers": {"type": "object", "additionalProperties": NUMBER},
    "dictionary by pattern": {
        "type": "object",
        "patternProperties": {"^x-[a-z]+$": STRING, "^n[0-9]$": INTEGER},
        "additionalProperties": False,
    },
    "patterns that overlap": {
        "type": "object",
        "patternProperties": {"^a": {"type": "integer"}, "z$": {"minimum": 10}},
        "additionalProperties": False,
    },
    "dictionary by enum": {
        "type": "object",
        "propertyNames": {"enum": ["red", "green", "blue"]},
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 255},
        "minProperties": 2,
    },
    "short names": {"type": "object", "propertyNames": {"maxLength": 3}, "maxProperties": 2},
    "one to three members": {
        "type": "object",
        "additionalProperties": BOOLEAN,
        "minProperties": 1,
        "maxProperties": 3,
    },
    "two of three": _object({"a": NULL, "b": NULL, "c": NULL}, "a", "b", "c", minProperties=2),
    "point": {"type": "array", "prefixItems": [NUMBER, NUMBER], "items": False, "minItems": 2},
    "row": {"type": "array", "prefixItems": [STRING, INTEGER, BOOLEAN], "minItems": 1},
    "matrix": _list(_list(INTEGER, minItems=3, maxItems=3), minItems=3, maxItems=3),
    "contains": {"type": "array", "items": INTEGER, "contains": {"minimum": 100}},
    "contains two": {
        "type": "array",
        "items": {"type": ["string", "null"]},
        "contains": NULL,
        "minContains": 1,
        "maxContains": 2,
    },
    "set of letters": _list({"enum": ["a", "b", "c"]}, uniqueItems=True, minItems=1),
    "set of flags": _list(BOOLEAN, uniqueItems=True),
    "mixed enum": {"enum": ["a", 1, 2.5, None, True, [1, "x"], {"k": "v"}]},
    "escaped enum": {
        "enum": ['say "hi"', "back\\slash", "new\nline", "tab\t", "é", "😀", "\u0001"]
    },
    "enum without": {"enum": ["a", "b", "c"], "not": {"const": "b"}},
    "not a string": {"not": {"type": "string"}},
    "not an object with": {"type": "object", "not": {"required": ["secret"]}},
    "integer but not": {"type": "integer", "not": {"enum": [0, 1]}},
    "text but not": {"type": "string", "not": {"pattern": "^_"}, "maxLength": 8},
    "const object": {"const": {"version": 1, "tags": ["a", "b"], "nested": {"ok": True}}},
    "const number": {"const": 3.5},
    "const text": {"const": "yes"},
    "one of types": {"type": ["integer", "string", "boolean"]},
    "titles and notes": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/thing",
        "title": "Thing",
        "description": "A thing.",
        "type": "object",
        "properties": {"x": {"type": "integer", "title": "X", "examples": [1], "default": 0}},
        "required": ["x"],
        "additionalProperties": False,
    },
    "anchors": {
        "$defs": {"positive": {"$anchor": "positive", "type": "integer", "exclusiveMinimum": 0}},
        "type": "array",
        "items": {"$ref": "#positive"},
    },
    "dynamic tree": {
        "$id": "https://example.com/tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"data": NUMBER, "children": _list({"$dynamicRef": "#node"})},
        "additionalProperties": False,
    },
    "unicode names": _object({"größe": NUMBER, "名前": STRING, 'a"b\\c': NULL}),
    "empty names": _object({"": STRING, " ": STRING}),
    "deep": _object({"a": _object({"b": _object({"c": _object({"d": _object({"e": NULL})})})})}),
    "openapi": _object(
        {
            "status": {"type": "integer", "format": "int32", "minimum": 100, "maximum": 599},
            "data": {"type": "object", "additionalProperties": True},
            "errors": _list(_object({"code": STRING, "detail": STRING}, "detail")),
            "links": _object({"self": {"type": "string", "format": "uri"}, "next": STRING}, "next"),
        },
        "errors",
    ),
    "chat message": _object(
        {
            "role": {"enum": ["system", "user", "assistant", "tool"]},
            "content": {
                "anyOf": [
                    STRING,
                    _list(
                        {
                            "anyOf": [
                                _object({"type": {"const": "text"}, "text": STRING}),
                                _object(
                                    {
                                        "type": {"const": "image_url"},
                                        "image_url": _object({"url": STRING}),
                                    }
                                ),
                            ]
                        }
                    ),
                ]
            },
        }
    ),
    "geojson": _object(
        {
            "type": {"const": "Feature"},
            "geometry": {
                "oneOf": [
                    _object({"type": {"const": "Point"}, "coordinates": _list(NUMBER, minItems=2)}),
                    _object(
                        {
                            "type": {"const": "LineString"},
                            "coordinates": _list(_list(NUMBER, minItems=2), minItems=2),
                        }
                    ),
                ]
            },
            "properties": {"type": ["object", "null"]},
        }
    ),
    "resume": _object(
        {
            "name": STRING,
            "email": {"type": "string", "format": "email"},
            "links": _list({"type": "string", "format": "uri"}, maxItems=3),
            "jobs": _list(
                _object(
                    {
                        "title": STRING,
                        "from": {"type": "string", "format": "date"},
                        "to": {"anyOf": [{"type": "string", "format": "date"}, NULL]},
                        "skills": _list({"type": "string", "minLength": 2}),
                    }
                )
            ),
        }
    ),
    "server settings": _object(
        {
            "host": {"type": "string", "format": "hostname"},
            "ipv4": {"type": "string", "format": "ipv4"},
            "ipv6": {"type": "string", "format": "ipv6"},
            "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "timeout": {"type": "string", "format": "duration"},
            "log": {"enum": ["debug", "info", "warning", "error"]},
            "weights": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "ipv6",
        "timeout",
    ),
    "calendar": _object(
        {
            "summary": STRING,
            "start": {"type": "string", "format": "date-time"},
            "attendees": _list({"type": "string", "format": "email"}, maxItems=4),
            "repeat": {
                "anyOf": [
                    NULL,
                    _object(
                        {
                            "every": {"enum": ["day", "week", "month"]},
                            "times": {"type": "integer", "minimum": 1, "maximum": 52},
                        }
                    ),
                ]
            },
        }
    ),
    "sql filter": {
        "$defs": {
            "filter": {
                "anyOf": [
                    _object(
                        {
                            "column": {"type": "string", "pattern": "^[a-z_][a-z0-9_]*$"},
                            "operator": {"enum": ["=", "<", ">", "like"]},
                            "value": {"type": ["string", "number", "null"]},
                        }
                    ),
                    _object({"and": _list({"$ref": "#/$defs/filter"}, minItems=2)}),
                    _object({"or": _list({"$ref": "#/$defs/filter"}, minItems=2)}),
                    _object({"not": {"$ref": "#/$defs/filter"}}),
                ]
            }
        },
        "$ref": "#/$defs/filter",
    },
    "package": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"},
            "version": {"type": "string", "pattern": "^[0-9]+\\.[0-9]+\\.[0-9]+$"},
            "private": BOOLEAN,
            "dependencies": {"type": "object", "additionalProperties": STRING},
        },
        "required": ["name", "version"],
        "patternProperties": {"^x-": True},
        "additionalProperties": False,
    },
    "many properties": _object(
        {f"field_{i}": [STRING, INTEGER, BOOLEAN][i % 3] for i in range(30)}
    ),
    "many optional": _object({f"f{i}": INTEGER for i in range(25)}, *(f"f{i}" for i in range(25))),
    "large enum": {"enum": [f"value-{i}" for i in range(500)]},
}

STRINGS: list[Schema] = [
    {"minLength": 3},
    {"maxLength": 5},
    {"minLength": 2, "maxLength": 4},
    {"minLength": 0, "maxLength": 0},
    *(
        {"pattern": pattern}
        for pattern in (
            "^[a-z]+$",
            "^[A-Z][a-z]*( [A-Z][a-z]*)*$",
            "^\\d{3}-\\d{4}$",
            "cat|dog",
            "^#[0-9a-fA-F]{6}$",
            "^(yes|no)$",
            "^[!-~]+$",
            "[0-9]$",
            '^"quoted"$',
            "^a\\\\b$",
            "^.{2,5}$",
            "^\\w+@\\w+$",
            "^(?!x)[a-z]{1,3}$",
            '^[^"\\\\]*$',
            "^$",
            "^[\\u00e0-\\u00ff]+$",
            "^v[0-9]+(\\.[0-9]+){0,2}$",
            "^(\\+[0-9]{1,3})?[0-9]{6,12}$",
            "^[a-z]{2}(-[A-Z]{2})?$",
        )
    ),
    {"pattern": "^[a-z]*$", "minLength": 2, "maxLength": 6},
    {"pattern": "a", "maxLength": 3},
    {"enum": ["x", "yy", "zzz"], "minLength": 2},
    *(
        {"format": name}
        for name in (
            "date",
            "time",
            "date-time",
            "duration",
            "email",
            "hostname",
            "ipv4",
            "ipv6",
            "uri",
            "uuid",
            "regex",
            "unknown-format",
        )
        if name != "regex"
    ),
    {"format": "date", "pattern": "^20"},
    {"format": "email", "maxLength": 20},
]

NUMBERS: list[Schema] = [
    {"minimum": 0}, {"minimum": -5}, {"minimum": 2.5}, {"maximum": 0}, {"maximum": 99},
    {"maximum": -0.25}, {"exclusiveMinimum": 0}, {"exclusiveMinimum": -1.5},
    {"exclusiveMaximum": 0},
    {"exclusiveMaximum": 1}, {"minimum": 0, "maximum": 1}, {"minimum": -1, "maximum": 1},
    {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"minimum": 10, "maximum": 1000},
    {"minimum": -273.15}, {"minimum": 3, "maximum": 3}, {"minimum": 0.001, "maximum": 0.002},
    {"multipleOf": 0.5}, {"multipleOf": 0.25, "minimum": 0}, {"multipleOf": 5}, {"multipleOf": 3},
    {"multipleOf": 10, "maximum": 100}, {"enum": [1, 2, 4, 8]}, {"enum": [0.5, -0.5]},
    {"minimum": 100000000000}, {"not": {"minimum": 0}}, {"anyOf": [{"maximum": 0}, {"minimum": 9}]},
]  # fmt: skip

INTEGERS: list[Schema] = [
    {}, {"minimum": 1}, {"minimum": 0, "maximum": 255}, {"minimum": -128, "maximum": 127},
    {"exclusiveMinimum": 5, "exclusiveMaximum": 9}, {"multipleOf": 2}, {"multipleOf": 4},
    {"multipleOf": 25}, {"multipleOf": 7, "minimum": 0, "maximum": 100}, {"maximum": -10},
    {"minimum": 1900, "maximum": 2100}, {"minimum": 0.5, "maximum": 3.5}, {"not": {"const": 0}},
]  # fmt: skip

ARRAYS: list[Schema] = [
    {}, {"maxItems": 0}, {"minItems": 1}, {"maxItems": 2}, {"minItems": 2, "maxItems": 2},
    {"minItems": 5, "maxItems": 9}, {"items": BOOLEAN}, {"items": False}, {"items": INTEGER},
    {"prefixItems": [NULL]}, {"prefixItems": [NULL, BOOLEAN], "items": STRING},
    {"prefixItems": [{"const": 1}, {"const": 2}, {"const": 3}], "items": False},
    {"items": STRING, "contains": {"const": "x"}}, {"contains": NULL, "maxContains": 1},
    {"contains": {"type": "integer"}, "minContains": 2, "maxItems": 3},
    {"items": {"type": ["integer", "null"]}, "contains": NULL, "minContains": 0, "maxContains": 2},
    {"items": _list(_list(NULL))}, {"prefixItems": [STRING], "unevaluatedItems": False},
    {"not": {"items": INTEGER}}, {"not": {"contains": NULL}, "maxItems": 3},
    {"items": {"enum": [1, 2, 3, 4]}, "uniqueItems": True}, {"maxItems": 1, "uniqueItems": True},
]  # fmt: skip


class _Maker:
    """Random schemas as people write them for answers and calls."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def schema(self, depth: int) -> Schema:
        kinds = ["text", "number", "enum", "flag", "nullable"]
        if depth > 0:
            kinds += ["object", "object", "object", "list", "list", "union", "dictionary"]
        make = getattr(self, f"_{self._rng.choice(kinds)}")
        return make(depth)

    def object(self, depth: int) -> Schema:
        names = self._rng.sample(NAMES, self._rng.randint(1, 6))
        properties = {name: self.schema(depth - 1) for name in names}
        optional = [name for name in names if self._rng.random() < 0.3]
        made = _object(properties, *optional)
        if self._rng.random() < 0.2:
            made["additionalProperties"] = self.schema(0)
        return made

    def _object(self, depth: int) -> Schema:
        return self.object(depth)

    def _text(self, _: int) -> Schema:
        return STRING | self._rng.choice([{}, {}, *STRINGS])

    def _number(self, _: int) -> Schema:
        if self._rng.random() < 0.5:
            return INTEGER | self._rng.choice(INTEGERS)
        return NUMBER | self._rng.choice(NUMBERS)

    def _enum(self, _: int) -> Schema:
        return {"enum": self._rng.sample(["low", "medium", "high", 1, 2, None, "a b"], 3)}

    def _flag(self, _: int) -> Schema:
        return self._rng.choice([BOOLEAN, NULL, {"const": True}])

    def _nullable(self, depth: int) -> Schema:
        return {"anyOf": [self.schema(max(depth - 1, 0)), NULL]}

    def _list(self, depth: int) -> Schema:
        bounds = self._rng.choice([{}, {"minItems": 1}, {"maxItems": 3}])
        return _list(self.schema(depth - 1), **bounds)

    def _dictionary(self, depth: int) -> Schema:
        return {"type": "object", "additionalProperties": self.schema(depth - 1)}

    def _union(self, depth: int) -> Schema:
        keyword = self._rng.choice(["anyOf", "oneOf"])
        branches = []
        for kind in self._rng.sample(["create", "update", "remove", "list"], 2):
            branch = self.object(depth - 1)
            branch["properties"] = {"kind": {"const": kind}} | branch["properties"]
            branch["required"] = ["kind", *branch["required"]]
            branches.append(branch)
        return {keyword: branches}


NAMES = [
    "id",
    "name",
    "title",
    "description",
    "price",
    "amount",
    "count",
    "status",
    "tags",
    "items",
    "created_at",
    "updated_at",
    "owner",
    "email",
    "url",
    "score",
    "rank",
    "parent",
    "notes",
    "language",
    "first_name",
    "last_name",
    "is_active",
    "metadata",
]


def _numbered(kind: str, schemas: list[Schema], base: Schema) -> Iterator[tuple[str, Schema]]:
    for i, schema in enumerate(schemas):
        yield f"{kind} {i}", base | schema
        yield (
            f"{kind} {i} in an object",
            _object({"value": base | schema, "other": STRING}, "value"),
        )


def _made() -> Iterator[tuple[str, Schema]]:
    yield from WRITTEN.items()
    yield from _numbered("string", STRINGS, STRING)
    yield from _numbered("number", NUMBERS, NUMBER)
    yield from _numbered("integer", INTEGERS, INTEGER)
    yield from _numbered("array", ARRAYS, {"type": "array"})
    for seed in range(120):
        yield f"random {seed}", _Maker(seed).object(3)


SCHEMAS: list[tuple[str, Schema]] = list(_made())
