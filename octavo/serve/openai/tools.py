"""The tools of a chat request: what the model is told of them, and whether it must call one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.base.errors import RequestError
from octavo.serve.openai.schemas import ChatBody, TemplateBody
from octavo.serve.openai.shapes import NamedChoice, Tool

_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


Choice = (
    str | Mapping[str, Any]
)  # "auto", "required", or of a named function, as the client sent it


@dataclass(frozen=True)
class ToolUse:
    """Tools that may be called, as the template is told of them."""

    tools: list[dict[str, Any]]
    choice: Choice
    parallel: bool
    strict: bool  # one of them at least

    @property
    def named(self) -> bool:
        """The client chose the function."""
        return not isinstance(self.choice, str)


def shown_tools(body: TemplateBody) -> list[dict[str, Any]] | None:
    """What a template is told: nothing of tools that must not be called."""
    if body.tools is None or body.tool_choice == "none":
        return None
    return [_shown(tool) for tool in body.tools]


def tool_use(body: ChatBody) -> ToolUse | None:
    """None: no calls are to be made.

    Raises:
        RequestError: two tools have one name, or the choice is among none.
    """
    if body.tools is None:
        if body.tool_choice not in (None, "none"):
            raise RequestError("tool_choice needs tools", "tool_choice")
        return None
    names = [tool.function.name for tool in body.tools]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RequestError(f"tools: the name {twice!r} is there twice", "tools")
    tools = shown_tools(body)
    if tools is None:
        return None
    return ToolUse(
        tools=tools,
        choice=_choice(body, names),
        parallel=body.parallel_tool_calls is not False,
        strict=any(tool.function.strict for tool in body.tools),
    )


def _choice(body: ChatBody, names: list[str]) -> Choice:
    if not isinstance(body.tool_choice, NamedChoice):
        return body.tool_choice or "auto"
    name = body.tool_choice.function.name
    if name not in names:
        raise RequestError(f"tool_choice: there is no tool {name[:64]!r}", "tool_choice")
    return body.tool_choice.model_dump()


def _shown(tool: Tool) -> dict[str, Any]:
    """Without what is not for the model; templates look for parameters always."""
    shown = tool.model_dump(exclude_unset=True, exclude={"function": {"strict"}})
    if tool.function.parameters is None:
        shown["function"]["parameters"] = _NOTHING
    return shown
