"""Conversation -> token ids, one way for offline and online use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from octavo.base.errors import ModelError, RequestError
from octavo.files.model_files import ModelFiles
from octavo.text.chat_template import ChatTemplate
from octavo.text.formats.choose import AUTO, choose
from octavo.text.formats.output_format import OutputFormat
from octavo.text.tokenizer import Tokenizer, load_tokenizer


class Renderer:
    """A tokenizer and the chat template that goes with it, if there is one."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        tool_call_parser: str = AUTO,
        reasoning_parser: str = AUTO,
    ) -> None:
        """The parsers' names: of the format of the model's answers, see `choose`."""
        self.tokenizer = tokenizer
        self._template = template
        self._parsers = (tool_call_parser, reasoning_parser)

    @cached_property
    def format(self) -> OutputFormat:
        """How the model writes its answers; chosen and proved when it is first asked for.

        Raises:
            ConfigError: a parser's name is unknown.
        """
        return choose(self.tokenizer, self._template, *self._parsers)

    @property
    def tools_refused(self) -> str | None:
        """Why a request cannot have tools, if it cannot."""
        if self._template is not None and not self._template.shows_tools:
            return "the chat template does not show them; --chat-template sets another"
        return self.format.tools_refused

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_special_tokens: bool = False,
        **options: Any,
    ) -> list[int]:
        """Token ids of a conversation; `options` as in `ChatTemplate.render`.

        Raises:
            RequestError: the model has no chat template, or the template refuses the messages.
        """
        return self.tokenizer.encode_chat(self.render(messages, **options), add_special_tokens)

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The conversation as the text that the model reads."""
        return self._needed_template().render(messages, **options)

    def sections(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[tuple[int, str]]:
        """That text cut where each message ends, see `ChatTemplate.sections`."""
        return self._needed_template().sections(messages, **options)

    def _needed_template(self) -> ChatTemplate:
        if self._template is None:
            raise RequestError(
                "the model has no chat template; start with --chat-template", "messages"
            )
        return self._template


def load_renderer(
    files: ModelFiles,
    tokenizer: str | None = None,
    chat_template: str | None = None,
    tool_call_parser: str = AUTO,
    reasoning_parser: str = AUTO,
) -> Renderer:
    """The model's tokenizer and template, or those given instead by path.

    Raises:
        ModelError: one of them cannot be found or understood.
    """
    loaded = load_tokenizer(files, tokenizer)
    source = loaded.chat_template if chat_template is None else _read(chat_template)
    template = ChatTemplate(source, loaded.special_tokens) if source else None
    return Renderer(loaded, template, tool_call_parser, reasoning_parser)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"chat_template {path}: {error}") from error
