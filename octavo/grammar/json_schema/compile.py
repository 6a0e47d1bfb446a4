"""From a JSON Schema to a grammar of exactly the JSON texts that satisfy it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.grammar.json_schema.documents import Documents
from octavo.grammar.json_schema.errors import SchemaError
from octavo.grammar.json_schema.meaning import Meaning
from octavo.grammar.json_schema.nodes import pruned
from octavo.grammar.json_schema.writer import Writer
from octavo.grammar.regex import Regex
from octavo.grammar.rules import Grammar

MAX_NESTING = 64


def compile_schema(
    schema: Any, whitespace: Regex, documents: Mapping[str, Any] | None = None
) -> Grammar:
    """The texts of JSON that satisfy a schema of draft 2020-12.

    Members of an object are written in the schema's order: those it names, then others.

    Args:
        schema: as parsed JSON.
        whitespace: what may stand between the parts of JSON; may match nothing.
        documents: schemas that it may refer to, by URI.

    Raises:
        SchemaError: the schema is wrong, nothing satisfies it, or no grammar can say it exactly.
    """
    _check_nesting(schema)
    try:
        known = Documents(schema, documents or {})
        writer = Writer(Meaning(known), known.root, whitespace)
        grammar = pruned(writer.write(), writer.rules)
    except RecursionError:
        raise SchemaError("#", "schemas refer too deeply into one another") from None
    if grammar is None:
        raise SchemaError("#", "no value satisfies the schema")
    return grammar


def _check_nesting(schema: Any) -> None:
    level, depth = [schema], 0
    while level:
        if depth > MAX_NESTING:
            raise SchemaError("#", f"the schema is nested more than {MAX_NESTING} deep")
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
        level, depth = inner, depth + 1
