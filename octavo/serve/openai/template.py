"""What a chat template is given: a request's messages and the fields beside them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from octavo.base.errors import RequestError
from octavo.engine.history import Outline
from octavo.serve.openai.schemas import ChatBody, Message, TemplateBody
from octavo.serve.openai.tools import shown_tools
from octavo.text.renderer import Renderer

_SWITCHES = ("enable_thinking", "thinking")  # of reasoning, in templates that have one
KEPT_BYTES = 4096  # of a body, and
KEPT_BYTES_PER_TOKEN = 16  # more than a prompt that is mostly text needs


def template_fields(body: TemplateBody) -> dict[str, Any]:
    """Raises:
    RequestError: a final message cannot be continued and a new one begun.
    """
    if body.add_generation_prompt and body.continue_final_message:
        raise RequestError(
            "continue_final_message and add_generation_prompt exclude each other",
            "continue_final_message",
        )
    variables = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    if body.reasoning_effort == "none":
        for name in _SWITCHES:
            variables.setdefault(name, False)
    generation_prompt = body.add_generation_prompt
    if generation_prompt is None:
        generation_prompt = not body.continue_final_message
    return {
        "add_generation_prompt": generation_prompt,
        "continue_final_message": body.continue_final_message,
        "add_special_tokens": bool(body.add_special_tokens),
        "documents": body.documents,
        "tools": shown_tools(body),
        "variables": variables,
    }


def template_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """The messages as a template knows them, with all that clients put into them. Reasoning that
    a client sends back goes by the name that templates have for it."""
    dumped = [message.model_dump(exclude_unset=True) for message in messages]
    for message in dumped:
        if message.get("reasoning") is not None:
            message.setdefault("reasoning_content", message["reasoning"])
    return dumped


def outline(renderer: Renderer, body: bytes, prompt_len: int) -> Outline | None:
    """Tells which messages of a `ChatBody` made which text of the prompt. It keeps the body as it
    came, and None is for one that is out of proportion to its prompt."""
    if len(body) > KEPT_BYTES + KEPT_BYTES_PER_TOKEN * prompt_len:
        return None
    return partial(_sections, renderer, body)


def _sections(renderer: Renderer, body: bytes) -> list[tuple[str, str]]:
    chat = ChatBody.model_validate(json.loads(body))
    messages, fields = template_messages(chat.messages), template_fields(chat)
    fields.pop("add_special_tokens")
    try:
        pieces = renderer.sections(messages, **fields.pop("variables"), **fields)
    except RequestError:  # a template that minds what its messages end with
        return []
    return [(_name(i, chat.messages[i]), piece) for i, piece in pieces]


def _name(index: int, message: Message) -> str:
    opens = index == 0 and message.role in ("system", "developer")
    return "system" if opens else f"messages[{index}]"
