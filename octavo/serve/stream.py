"""Answers that end early when the client does: server-sent events, and plain answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from fastapi import Response
from starlette.types import Receive, Scope, Send

from octavo.base.errors import OctavoError
from octavo.base.log import logger
from octavo.serve.errors import ErrorBody, describe

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # proxies pass events at once
CLIENT_GONE = 499  # nobody reads it; the usual status for it in logs

_log = logger("serve")
_encoder = msgspec.json.Encoder()


class EventStream(Response):
    """Structs as they come, an event each, then `[DONE]`; a late error is an event too.

    The head is sent with the first event, so that whatever fails before it (a full queue, a dead
    engine) still gets its own status.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[msgspec.Struct, None], headers: dict[str, str]
    ) -> None:
        super().__init__(headers=HEADERS | headers)
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        head = {"status": self.status_code, "headers": self.raw_headers}
        async with aclosing(self._events) as events:
            first = await anext(events)
            await send({"type": "http.response.start", **head})
            try:
                await _send_event(send, first)
                async for payload in events:
                    await _send_event(send, payload)
            except Exception as error:  # the answer's outermost loop: its status is sent already
                await _send_event(send, _last_words(error))
        await send({"type": "http.response.body", "body": DONE, "more_body": False})


async def _send_event(send: Send, payload: msgspec.Struct) -> None:
    data = b"data: " + _encoder.encode(payload) + b"\n\n"
    await send({"type": "http.response.body", "body": data, "more_body": True})


def _last_words(error: Exception) -> ErrorBody:
    if not isinstance(error, OctavoError):
        _log.error("a stream broke off", exc_info=error)
    return describe(error)[1]


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; where the client goes away first, `work` is cancelled and None."""
    worker = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((worker, gone), return_when=asyncio.FIRST_COMPLETED)
        return await worker if worker.done() else None
    finally:
        gone.cancel()
        worker.cancel()
        await asyncio.gather(worker, gone, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def json_answer(payload: msgspec.Struct | None, headers: dict[str, str] | None = None) -> Response:
    """`payload` as JSON; None stands for a client that did not wait for it."""
    if payload is None:
        return Response(status_code=CLIENT_GONE)
    return Response(_encoder.encode(payload), 200, headers, "application/json")
