"""What a chat answer is held to: the shape that is asked for, and calls that must be right."""

from __future__ import annotations

import msgspec

from octavo.base.errors import RequestError
from octavo.base.structured import StructuredOutputsParams
from octavo.serve.openai.structure import Structure, blamed_on
from octavo.serve.openai.tools import ToolUse
from octavo.text.renderer import Renderer

_OBJECT = '{"type": "object"}'


def constraint(
    renderer: Renderer, tools: ToolUse | None, shape: Structure | None
) -> Structure | None:
    """None: nothing. Calls are held to the model's own format where one must be made, where a tool
    is strict, where only one may be made, and where text must have a shape.

    Raises:
        RequestError: the model cannot call tools, or calls and shape cannot be held to at once.
    """
    if tools is None:
        return shape
    if (why := renderer.tools_refused) is not None:
        raise RequestError(f"tools: {why}", "tools")
    if tools.choice != "auto":
        shape = None  # there is no text that could have it
    elif shape is None and tools.parallel and not tools.strict:
        return None
    with blamed_on("tools"):
        content = None if shape is None else _expression(shape)
        grammar = renderer.format.grammar(tools.tools, tools.choice, tools.parallel, content)
        return Structure(_with(grammar, shape), "tools")


def _expression(shape: Structure) -> str:
    """Of grammar text."""
    params = shape.params
    if params.kind not in ("json", "json_object"):
        raise RequestError(
            f"{shape.field} does not go with tools that the model may leave alone, unless it is "
            "JSON",
            shape.field,
        )
    return f"%json {params.json if params.kind == 'json' else _OBJECT}"


def _with(grammar: str, shape: Structure | None) -> StructuredOutputsParams:
    """With the options of a shape that is part of the grammar."""
    if shape is None:
        return StructuredOutputsParams(grammar=grammar)
    none = dict.fromkeys(("json", "json_object"))
    return msgspec.structs.replace(shape.params, grammar=grammar, **none)
