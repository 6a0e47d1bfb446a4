"""What stands before the routes: request bodies are bounded and JSON; request ids come back.

Plain ASGI. A body is read whole here, up to the limit, so that no route waits on a slow sender
while it holds anything, and a body that is too large is refused before it is kept.
"""

from __future__ import annotations

import asyncio

from fastapi import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.serve.errors import http_error

MAX_REQUEST_ID = 256  # characters of a client's X-Request-Id that are sent back
BODY_SECONDS = 60.0  # how long a body may take to arrive
LINGER_SECONDS = 2.0  # how long a refused body is read and thrown away, see `_refuse`


class BodyGate:
    """Refuses bodies that are not JSON (415), larger than `limit` bytes (413), or late (408)."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH"):
            return await self._app(scope, receive, send)
        refusal = self._judge(Headers(scope=scope))
        body = refusal or await self._read(receive)
        if isinstance(body, Response):
            return await _refuse(body, receive, send)
        await self._app(scope, _replay(body, receive), send)

    def _judge(self, headers: Headers) -> Response | None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return http_error(415, f"content-type must be application/json, got {kind or 'none'}")
        if headers.get("content-encoding", "identity").lower() != "identity":
            return http_error(415, "content-encoding must be identity: bodies are not unpacked")
        length = headers.get("content-length", "0")
        return self._too_large() if length.isdigit() and int(length) > self._limit else None

    async def _read(self, receive: Receive) -> bytes | Response:
        """The whole body; a refusal as soon as it is over the limit, or late."""
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more and len(body) <= self._limit:
                    message = await receive()
                    body += message.get("body", b"")
                    more = message.get("more_body", False)  # nor where the client is gone
        except TimeoutError:
            return http_error(408, f"the body took longer than {BODY_SECONDS:g} seconds")
        return bytes(body) if len(body) <= self._limit else self._too_large()

    def _too_large(self) -> Response:
        return http_error(413, f"the body is larger than {self._limit} bytes")


class EchoRequestId:
    """Sends a client's X-Request-Id back; routes set their own for clients that bring none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id") if scope["type"] == "http" else None
        if not given:
            return await self._app(scope, receive, send)

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = given[:MAX_REQUEST_ID]
            await send(message)

        await self._app(scope, receive, marked)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out `body` once, then waits for the client to go."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


async def _refuse(answer: Response, receive: Receive, send: Send) -> None:
    """Answer at once, then throw away what is still coming for a moment before hanging up.

    Closing a socket with unread bytes resets it, and the client may never see the answer.
    """
    answer.headers["connection"] = "close"
    await send(
        {"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers}
    )
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})
