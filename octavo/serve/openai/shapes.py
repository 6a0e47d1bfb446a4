"""What clients may send about the shape of an answer: formats, structures, tools and past calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from octavo.serve.openai.body import Body, said_as

MAX_TOOLS = 1024
FUNCTION_NAME = r"^[a-zA-Z0-9_-]{1,64}$"

Schema = Annotated[dict[str, Any] | bool, said_as("a JSON Schema")]
SchemaOrText = Annotated[dict[str, Any] | bool | str, said_as("a JSON Schema, or its text")]
TagOrText = Annotated[dict[str, Any] | str, said_as("an object, or its text")]


def _of_objects(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise PydanticCustomError("shape", 'must be the schema of an object: {"type": "object"}')
    return schema


class JsonSchema(Body):
    """`strict` has no effect: an answer always satisfies its schema."""

    name: str | None = Field(None, max_length=64)
    description: str | None = None
    schema_: Schema | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """A structural tag has its parts beside its type, as in vLLM."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Body):
    """As `octavo.base.structured.StructuredOutputsParams`."""

    json_: SchemaOrText | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: TagOrText | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None
    close_in_time: bool | None = None


class Function(Body):
    name: str = Field(pattern=FUNCTION_NAME)
    description: str | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(_of_objects)] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class ChosenFunction(Body):
    name: str


class NamedChoice(Body):
    type: Literal["function"]
    function: ChosenFunction


Tools = Annotated[list[Tool], Field(min_length=1, max_length=MAX_TOOLS)]
ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedChoice,
    said_as('"none", "auto", "required" or {"type": "function", "function": {"name": ...}}'),
]


class CalledFunction(Body):
    name: str
    arguments: Annotated[dict[str, Any] | str, said_as("an object, or its text")] | None = None


class PastCall(Body):
    """A call that an earlier message made."""

    function: CalledFunction
