"""What a chat answer is held to: the shape that is asked for, and calls that must be right."""

from __future__ import annotations

import msgspec

from octavo.base.errors import RequestError
from octavo.base.structured import StructuredOutputsParams
from octavo.serve.openai.structure import Structure, blamed_on
from octavo.serve.openai.tools import ToolUse
from octavo.text.formats.output_format import OutputFormat
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
        return _in_its_place(renderer.format, shape)
    if (why := renderer.tools_refused) is not None:
        raise RequestError(f"tools: {why}", "tools")
    if tools.choice != "auto":
        shape = None  # there is no text that could have it
    elif shape is None and tools.parallel and not tools.strict:
        return None
    content = None if shape is None else _expression(shape)
    with blamed_on("tools"):
        grammar = renderer.format.grammar(tools.tools, tools.choice, tools.parallel, content)
        structure = _with(grammar, shape)
    return Structure(structure, "tools" if shape is None else shape.field)


def _in_its_place(format: OutputFormat, shape: Structure | None) -> Structure | None:
    """Where an answer has text among other parts, only that has the shape."""
    if shape is None or not format.places_text:
        return shape
    grammar = format.grammar([], "auto", content=_expression(shape))
    return Structure(_with(grammar, shape), shape.field)


def _expression(shape: Structure) -> str:
    """Of grammar text."""
    params = shape.params
    if params.kind not in ("json", "json_object"):
        raise RequestError(
            f"{shape.field}: only JSON can be asked for beside tools, or in this model's format",
            shape.field,
        )
    return f"%json {params.json if params.kind == 'json' else _OBJECT}"


def _with(grammar: str, shape: Structure | None) -> StructuredOutputsParams:
    """With the options of a shape that is part of the grammar."""
    if shape is None:
        return StructuredOutputsParams(grammar=grammar)
    none = dict.fromkeys(("json", "json_object"))
    return msgspec.structs.replace(shape.params, grammar=grammar, **none)
