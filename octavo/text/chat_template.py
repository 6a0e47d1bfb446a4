"""Chat messages -> one prompt text, by the model's own Jinja template.

The template comes with the model and is not trusted: it runs in Jinja's sandbox, and what it
writes is bounded. The environment has the extras that templates written for Hugging Face use.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo.base.errors import ModelError, RequestError
from octavo.text.past_calls import form_of

Message = Mapping[str, Any]

MAX_CHARACTERS = 2**24  # of a rendered chat
_END_MARK = "END_OF_THE_FINAL_MESSAGE "  # the space shows whether the template trims
_PROBE = "octavo-probe"

# What an expression of a template can raise over messages of an unexpected shape.
_RENDER_ERRORS = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)


class ChatTemplate:
    """A compiled template. Never changes after it is made, so threads may share it.

    Clients write a message's content as a string or as a list of parts. Some templates know one
    form, some both; which, is found once by rendering a short message in each form. A form that
    the template does not show is turned into the other: text parts are joined by newlines, a
    string becomes one text part. Calls have several forms too, see `past_calls`.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens` are the template's variables such as `bos_token`.

        Raises:
            ModelError: the template's syntax is wrong; the message names the line.
        """
        try:
            self._template = _environment().from_string(source)
        except TemplateSyntaxError as error:
            raise ModelError(f"chat template, line {error.lineno}: {error.message}") from error
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._shows_strings = self._shows(_PROBE)
        self._shows_parts = self._shows([{"type": "text", "text": _PROBE}])
        self._call_form = form_of(self._tried)

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the model is told of tools."""
        nothing = {"type": "object", "properties": {}}
        function = {"name": _PROBE, "description": _PROBE, "parameters": nothing}
        chat = [{"role": "user", "content": "?"}]
        text = self._tried(chat, tools=[{"type": "function", "function": function}])
        return text is not None and _PROBE in text

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt text. `kwargs` are further variables of the template.

        `add_generation_prompt` opens the assistant's turn; `continue_final_message` leaves the
        last message open instead, so that the model continues it.

        Raises:
            RequestError: the template refuses the messages or cannot show them.
        """
        if continue_final_message and add_generation_prompt:
            raise RequestError(
                "continue_final_message and add_generation_prompt exclude each other",
                "continue_final_message",
            )
        chat: list[Message] = [self._fitted(message) for message in messages]
        if not chat:
            raise RequestError("messages must not be empty", "messages")
        if continue_final_message:
            chat[-1] = _open(chat[-1])
        text = self._run(
            chat,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            documents=documents,
            **kwargs,
        )
        return _up_to_mark(text) if continue_final_message else text

    def sections(self, messages: Sequence[Message], **options: Any) -> list[tuple[int, str]]:
        """The prompt text, cut where the text of each message ends: the message's index, and what
        the prompt has since the cut before. Spaces at the cuts are left out, and so is what follows
        the last one. `options` as in `render`.

        Raises:
            RequestError: as in `render`.
        """
        mark = uuid.uuid4().hex
        marked = [
            _with_end(message, f"{mark}{i};", trim=True) or message
            for i, message in enumerate(messages)
        ]
        pieces = re.split(rf"{mark}(\d+);", self.render(marked, **options))
        return [(int(i), text) for text, i in zip(pieces[::2], pieces[1::2], strict=False)]

    def _run(self, chat: Sequence[Message], **variables: Any) -> str:
        pieces, size = [], 0
        try:
            for piece in self._template.generate(
                **{**self._special_tokens, **variables, "messages": chat}
            ):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_CHARACTERS:
                    raise RequestError(
                        f"messages make a prompt of over {MAX_CHARACTERS} characters", "messages"
                    )
        except _RENDER_ERRORS as error:
            raise RequestError(
                f"messages do not fit the model's chat template: {error}", "messages"
            ) from error
        return "".join(pieces)

    def _shows(self, content: Any) -> bool:
        """Whether the template writes this content's text, and not the look of its Python value."""
        text = self._tried([{"role": "user", "content": content}]) or ""
        return _PROBE in text and "'text'" not in text and '"text"' not in text

    def _tried(self, chat: Sequence[Message], **variables: Any) -> str | None:
        """None where the template refuses it."""
        try:
            return self._run(chat, add_generation_prompt=False, **variables)
        except RequestError:
            return None

    def _fitted(self, message: Message) -> Message:
        """The message with content in a form that the template shows, and without null fields,
        which clients send for absent ones and templates would print."""
        fitted = {key: value for key, value in message.items() if value is not None}
        content = fitted.get("content")
        if isinstance(content, str) and self._shows_parts and not self._shows_strings:
            fitted["content"] = [{"type": "text", "text": content}]
        elif isinstance(content, list):
            texts = [_text_of(part) for part in content]
            fitted["content"] = content if self._shows_parts else "\n".join(texts)
        return self._call_form.fitted(fitted)


def _text_of(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind != "text" or not isinstance(part.get("text"), str):
        raise RequestError(f"messages: this model cannot read content of type {kind!r}", "messages")
    return str(part["text"])


def _open(message: Message) -> Message:
    """The message with a mark after its last text."""
    marked = _with_end(message, _END_MARK)
    if marked is None:
        raise RequestError("continue_final_message: the last message has no text", "messages")
    return marked


def _with_end(message: Message, end: str, trim: bool = False) -> Message | None:
    """The message with `end` after its last text, or, with `trim`, in place of its last spaces;
    None where it has no text."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": (content.rstrip() if trim else content) + end}
    parts = list(content) if isinstance(content, list) else []
    for index in reversed(range(len(parts))):
        if isinstance(parts[index], Mapping) and isinstance(parts[index].get("text"), str):
            text = parts[index]["text"]
            parts[index] = {**parts[index], "text": (text.rstrip() if trim else text) + end}
            return {**message, "content": parts}
    return None


def _up_to_mark(text: str) -> str:
    """Cut where the last message ends. A template that trims the message has trimmed the mark's
    own space, and would have trimmed the message's."""
    end = text.rfind(_END_MARK.rstrip())
    if end < 0:
        raise RequestError(
            "continue_final_message: the chat template does not show the last message", "messages"
        )
    return text[:end] if text.startswith(_END_MARK, end) else text[:end].rstrip()


class _Generation(Extension):
    """`{% generation %}`, which marks what the assistant wrote for training, shows its body."""

    tags = {"generation"}  # noqa: RUF012  (jinja2's own way)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a prompt; Jinja's own filter would escape it for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
