"""What travels between a client and an engine process: msgpack, one tagged message a frame."""

from __future__ import annotations

import msgspec

from octavo.base.output import Delta, EngineStats
from octavo.base.request import Request
from octavo.base.settings import EngineSettings
from octavo.engine.info import EngineInfo


class Start(msgspec.Struct, frozen=True, tag=True):
    """The first message to a new engine process: settings, and the model's `ModelFiles`."""

    settings: EngineSettings
    name: str
    path: str


class Add(msgspec.Struct, frozen=True, tag=True):
    request: Request


class Abort(msgspec.Struct, frozen=True, tag=True):
    """A request, or one sequence of it."""

    request_id: str
    child: int | None = None


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the process; whatever runs is dropped."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    info: EngineInfo


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not start. `expected`: the message alone tells a user what to change."""

    message: str
    expected: bool


class Outputs(msgspec.Struct, frozen=True, tag=True):
    """What one step brought."""

    deltas: list[Delta]
    stats: EngineStats


ToEngine = Start | Add | Abort | Stop
FromEngine = Ready | Failed | Outputs

encode = msgspec.msgpack.Encoder().encode
decode_to_engine = msgspec.msgpack.Decoder(ToEngine).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode
