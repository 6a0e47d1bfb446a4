"""What an answer says, piece by piece: text, reasoning, calls of tools."""

from __future__ import annotations

import secrets
import string

import msgspec


class Text(msgspec.Struct, frozen=True):
    """A piece of the answer proper."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """A piece of what comes before the answer."""

    text: str


class CallBegin(msgspec.Struct, frozen=True):
    """A call of a known tool. Its arguments follow, before the next call begins."""

    index: int  # of the call in its answer
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """A piece of the arguments: joined they are the JSON text of an object. Where the model broke
    its own format after the call had begun, the rest is as the model wrote it."""

    index: int
    text: str


class CallEnd(msgspec.Struct, frozen=True):
    """The arguments are whole. A call that the token budget cut has no end."""

    index: int


Event = Text | Reasoning | CallBegin | CallArguments | CallEnd


def call_id(style: str, name: str, index: int) -> str:
    """A new id. Styles, as the models' templates want them: "" is OpenAI's, "mistral" has nine
    letters and digits, "kimi" tells name and number."""
    if style == "kimi":
        return f"functions.{name}:{index}"
    if style == "mistral":
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
    return f"call_{secrets.token_hex(12)}"


def merged(events: list[Event]) -> list[Event]:
    """Neighbours of one kind joined."""
    joined: list[Event] = []
    for event in events:
        match joined[-1] if joined else None, event:
            case Text(first), Text(second):
                joined[-1] = Text(first + second)
            case Reasoning(first), Reasoning(second):
                joined[-1] = Reasoning(first + second)
            case CallArguments(index, first), CallArguments(_, second):
                joined[-1] = CallArguments(index, first + second)
            case _:
                joined.append(event)
    return joined
