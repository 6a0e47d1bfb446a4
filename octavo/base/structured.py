"""What shape an answer must have, and where its reasoning ends, as a request says it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from octavo.base import check
from octavo.base.errors import RequestError

MAX_STRUCTURE = 2**20  # characters of a schema or grammar
MAX_CHOICES = 4096
KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


class Marker(msgspec.Struct, frozen=True):
    """What opens or closes a part of an answer: a token of its own, or a text."""

    text: str
    token_id: int | None = None


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """The reasoning that comes before an answer. Structure begins behind it.

    `state` is that of the prompt's end: a block is open, or the model may open one, or it will not.
    """

    opens: Marker
    closes: Marker
    state: str = "may"  # "open", "may", "closed"
    budget: int | None = None  # tokens of reasoning, then it is closed; None: any number


class StructuredOutputsParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shape of an answer: exactly one of the first six. Names and meaning as in vLLM.

    Raises:
        RequestError: none or several are given, or one is of the wrong type or too large.
    """

    json: str | dict[str, Any] | bool | None = None  # a JSON Schema, as text or as it is
    json_object: bool | None = None  # any JSON object
    regex: str | None = None  # all of the answer matches it
    choice: Sequence[str] | None = None  # the answer is one of these
    grammar: str | None = None  # Lark, or EBNF whose rules are written `name ::= ...`
    structural_tag: str | dict[str, Any] | None = None  # free text with parts that have a shape
    whitespace_pattern: str | None = None  # a regex: between the tokens of JSON
    disable_any_whitespace: bool = False  # JSON in its shortest form
    # When max_tokens comes near, only what still leads to a whole answer in time may be written.
    close_in_time: bool = True

    def __post_init__(self) -> None:
        given = [kind for kind in KINDS if getattr(self, kind) not in (None, False)]
        if self.json is False:  # a schema too, that nothing satisfies
            given.append("json")
        if len(given) != 1:
            names = ", ".join(given) or "none"
            raise RequestError(
                f"structured_outputs must have exactly one of {', '.join(KINDS)}; it has {names}",
                "structured_outputs",
            )
        self._check()

    @property
    def kind(self) -> str:
        """Which of the six it is."""
        return next(k for k in KINDS if getattr(self, k) is not None and self._has(k))

    def _has(self, kind: str) -> bool:
        return kind == "json" or getattr(self, kind) is not False

    def _check(self) -> None:
        for kind in ("json", "structural_tag"):
            value = getattr(self, kind)
            if isinstance(value, Mapping | bool) and (kind, value) != ("structural_tag", False):
                msgspec.structs.force_setattr(self, kind, _as_text(kind, value))
        for kind in ("json", "regex", "grammar", "structural_tag", "whitespace_pattern"):
            value = getattr(self, kind)
            if value is not None and not isinstance(value, str):
                raise RequestError(f"{kind} must be a text, got {type(value).__name__}", kind)
            if value is not None and len(value) > MAX_STRUCTURE:
                raise RequestError(
                    f"{kind} has {len(value)} characters; at most {MAX_STRUCTURE}", kind
                )
        if self.choice is not None:
            check.texts("choice", self.choice, MAX_CHOICES, MAX_STRUCTURE)
            if not self.choice:
                raise RequestError("choice must not be empty", "choice")
        for flag in ("disable_any_whitespace", "close_in_time"):
            check.flag(flag, getattr(self, flag))


def _as_text(kind: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{kind} is not JSON: {error}", kind) from error
