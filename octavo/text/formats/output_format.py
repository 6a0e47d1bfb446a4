"""How one model's answers say reasoning, text and calls: a description, bound to a vocabulary."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.base.structured import Marker, Thinking
from octavo.text.assembler import TextDelta
from octavo.text.formats.calls import NewId
from octavo.text.formats.description import Description
from octavo.text.formats.events import Event, call_id, merged
from octavo.text.formats.grammar import grammar_text
from octavo.text.formats.machine import Machine
from octavo.text.formats.marks import MarkedText, Marks
from octavo.text.tokenizer import Tokenizer

_TAIL = 256  # tokens of a prompt in which its last header is searched first

Tool = Mapping[str, Any]  # as in a request: {"type": "function", "function": {...}}


class OutputParser:
    """Reads one sequence of an answer."""

    def __init__(self, marks: Marks, machine: Callable[[Callable[[str], str]], Machine]) -> None:
        self._marked = MarkedText(marks)
        self._machine = machine(lambda text: text.translate(self._marked.shown))

    def feed(self, delta: TextDelta) -> list[Event]:
        """Events of what is certain now; with the last delta, the one that has a finish reason, all
        of them."""
        text = self._marked.feed(delta)
        return merged(self._machine.feed(text, delta.finish_reason is not None))

    @property
    def reasoning_tokens(self) -> int:
        """Tokens between the markers of reasoning, so far; the markers are not counted."""
        starts = self._marked.starts
        return sum(
            (bisect_left(starts, span[1]) if len(span) > 1 else len(starts))
            - bisect_left(starts, span[0])
            for span in self._machine.spans
        )


class OutputFormat:
    """What the server asks of a model's format. Never changes after it is made."""

    def __init__(
        self,
        description: Description,
        tokenizer: Tokenizer,
        *,
        header: str = "",
        tools_refused: str | None = None,
    ) -> None:
        """`header`: what every prompt ends with, at least, before the model answers;
        `tools_refused`: why calls cannot be read."""
        self.name = description.name
        self.description = description
        self.tools_refused = tools_refused
        self._tokenizer = tokenizer
        self._header = header.rstrip()
        self._marks = Marks(tokenizer.added_tokens, description.literals)
        self._bound = description.mapped(self._marks.spelled)

    @property
    def places_text(self) -> bool:
        """Whether the text of an answer stands in a place of its own, between other parts, so that
        a shape must be held to by `grammar`."""
        return self.description.reopens

    @property
    def reasons(self) -> bool:
        """Whether answers can have reasoning."""
        return self.description.reasoning is not None

    def parser(
        self,
        tools: Sequence[Tool] | None = None,
        thinking: Thinking | None = None,
        new_id: NewId | None = None,
    ) -> OutputParser:
        """Of one sequence. Calls are text without `tools`; `thinking` is that of its prompt."""
        state = "closed" if thinking is None else thinking.state
        ids = new_id or (lambda name, index: call_id(self.description.ids, name, index))
        schemas = dict(map(_function, () if self.tools_refused else tools or ()))
        return OutputParser(
            self._marks, lambda show: Machine(self._bound, schemas, state, show, ids)
        )

    def grammar(
        self,
        tools: Sequence[Tool],
        choice: str | Mapping[str, Any],
        parallel: bool = True,
        content: str | None = None,
    ) -> str:
        """Grammar text of an answer that calls `tools` rightly.

        `choice` as in a request: "auto" also allows an answer in text, "required" does not, and a
        named function is called once. Unless `parallel`, there is at most one call. `content`, an
        expression of grammar text, is what the text must be; then there are no calls behind it.

        Raises:
            RequestError: the format cannot hold to a tool's parameters.
        """
        found = list(map(_function, tools))
        if not isinstance(choice, str):
            name = choice["function"]["name"]
            found, parallel = [tool for tool in found if tool[0] == name], False
        return grammar_text(
            self._bound,
            self._marks,
            found,
            text=choice == "auto",
            parallel=parallel,
            content=content,
        )

    def thinking(self, prompt: str | Sequence[int], budget: int | None = None) -> Thinking | None:
        """The reasoning that may come behind a prompt, a rendered text or its tokens. None where
        the format has none, or several blocks between other parts."""
        if self.description.reasoning is None or self.description.reopens:
            return None
        opens, closes = self.description.reasoning
        state = state_of(self._tail(prompt), opens.strip(), closes.strip())
        return Thinking(
            opens=self._marker(opens), closes=self._marker(closes), state=state, budget=budget
        )

    def _marker(self, text: str) -> Marker:
        return Marker(text, self._tokenizer.added_tokens.get(text))

    def _tail(self, prompt: str | Sequence[int]) -> str:
        """What the model's turn has so far; without a header, the prompt's last characters."""
        if not isinstance(prompt, str):
            for tail in (prompt[-_TAIL:], prompt):
                text = self._tokenizer.decode(tail, skip_special_tokens=False)
                if self._header and self._header in text:
                    break
            prompt = text
        if self._header and self._header in prompt:
            return prompt.rpartition(self._header)[2]
        return prompt.rstrip()[-_TAIL:]


def state_of(turn: str, opens: str, closes: str) -> str:
    """A state of `Thinking` from the beginning of the model's turn."""
    opened, closed = turn.rfind(opens), turn.rfind(closes)
    if opened > closed:
        return "open"
    return "closed" if closed >= 0 or turn.strip() else "may"


def _function(tool: Tool) -> tuple[str, Any]:
    """Name and schema of the parameters."""
    function = tool["function"]
    return function["name"], function.get("parameters")
