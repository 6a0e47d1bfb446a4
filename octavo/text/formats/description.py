"""How a family of models writes its answers, as data. Knows no vocabulary and no parser.

White space in a literal stands for any white space, also for none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

FIELDS = ("{name}", "{id}", "{index}", "{arguments}", "{call}")
_FIELDS = re.compile(r"(\{(?:name|id|index|arguments|call)\})")


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """One way of writing calls: `opens`, a call, `between`, a call ..., `closes`.

    `call` is literal text with fields: {name}, {id}, {index}, {arguments}; or {call}, a JSON object
    that has the name under the first of `keys` and the arguments under one of the others.
    """

    call: str
    opens: str = ""
    closes: str = ""
    between: str | None = None  # None: one call
    anchored: bool = False  # only where the answer proper begins
    syntax: str = "json"  # of the arguments: "json", "python", "gemma", "tagged"
    tags: tuple[str, str, str, str] = ("", "", "", "")  # "tagged": around a name, around a value
    keys: tuple[str, ...] = ("name", "arguments", "parameters")

    @property
    def parts(self) -> list[str]:
        """Literals and fields in order."""
        return [part for part in _FIELDS.split(self.call) if part]

    @property
    def first(self) -> str:
        """The literal that a call, or a row of them, begins with."""
        lead = self.parts[0]
        return self.opens + ("" if lead in FIELDS else lead)

    @property
    def last(self) -> str:
        """The literal that follows the arguments of a row's last call."""
        tail = self.parts[-1]
        return ("" if tail in FIELDS else tail) or self.closes

    @property
    def literals(self) -> list[str]:
        own = [part for part in self.parts if part not in FIELDS]
        return [self.opens, self.closes, self.between or "", *own, *self.tags]

    def mapped(self, spell: Callable[[str], str]) -> Calls:
        """With other spellings of its literals."""
        a, b, c, d = map(spell, self.tags)
        return msgspec.structs.replace(
            self,
            call=spell(self.call),
            opens=spell(self.opens),
            closes=spell(self.closes),
            between=None if self.between is None else spell(self.between),
            tags=(a, b, c, d),
        )


THINK = ("<think>", "</think>")


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A whole format. Of several ways of writing calls, the first is that of the grammar."""

    name: str
    calls: tuple[Calls, ...] = ()
    aliases: tuple[str, ...] = ()  # names that other servers have for it
    reasoning: tuple[str, str] | None = THINK  # around it
    reopens: bool = False  # reasoning may begin again, later
    silent: tuple[str, ...] = ()  # literals between parts, that are no text
    resumes: str = ""  # what follows a block of reasoning, where something must
    answers: str = ""  # what opens the answer proper, where something must
    ids: str = ""  # see `call_id`

    @property
    def literals(self) -> list[str]:
        own = [literal for calls in self.calls for literal in calls.literals]
        own += [*(self.reasoning or ()), *self.silent, self.resumes, self.answers]
        return [literal for literal in own if literal]

    def mapped(self, spell: Callable[[str], str]) -> Description:
        """With other spellings of its literals."""
        return msgspec.structs.replace(
            self,
            calls=tuple(one.mapped(spell) for one in self.calls),
            reasoning=self.reasoning and (spell(self.reasoning[0]), spell(self.reasoning[1])),
            silent=tuple(map(spell, self.silent)),
            resumes=spell(self.resumes),
            answers=spell(self.answers),
        )
