"""Every failure as OpenAI's error object: one table from exception to status, type and code.

Knows HTTP and the tree in `base.errors`; never puts an unexpected exception's text on the wire.
"""

from __future__ import annotations

import math
from http import HTTPStatus

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from octavo.base.errors import (
    EngineDeadError,
    EngineError,
    NotFoundError,
    QueueFullError,
    RequestError,
)
from octavo.base.log import logger

MAX_MESSAGE = 500  # characters: an answer never multiplies what was sent
_log = logger("serve")


class ErrorObject(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorObject


# Nearest class first: an exception takes the first row it is an instance of.
TABLE: tuple[tuple[type[Exception], int, str, str | None], ...] = (
    (NotFoundError, 404, "not_found_error", "not_found"),
    (RequestError, 400, "invalid_request_error", None),
    (QueueFullError, 429, "rate_limit_error", "queue_full"),
    (EngineDeadError, 503, "service_unavailable_error", "engine_dead"),
    (EngineError, 500, "server_error", "engine_error"),
    # Half a surrogate pair, which JSON can escape, in a stop string or a salt.
    (UnicodeEncodeError, 400, "invalid_request_error", None),
)
UNEXPECTED = (500, "server_error", None)


def describe(error: Exception) -> tuple[int, ErrorBody]:
    """The status and body for `error`; an exception outside the table says nothing of itself."""
    for kind, status, type_, code in TABLE:
        if isinstance(error, kind):
            param = error.field if isinstance(error, RequestError) else None
            return status, error_body(str(error), type_, param, code)
    status, type_, code = UNEXPECTED
    return status, error_body("internal error; the server's log says more", type_, None, code)


def error_body(message: str, type_: str, param: str | None, code: str | None) -> ErrorBody:
    return ErrorBody(ErrorObject(_sendable(message)[:MAX_MESSAGE], type_, param, code))


def error_response(status: int, body: ErrorBody, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def http_error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error of the protocol itself: unknown route, wrong method, wrong content type."""
    type_ = "not_found_error" if status == 404 else "invalid_request_error"
    code = HTTPStatus(status).phrase.lower().replace(" ", "_")
    return error_response(status, error_body(message, type_, None, code), headers)


def install(app: FastAPI) -> None:
    """Make every failure of `app` answer with an error object."""
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    for kind, *_ in TABLE:
        app.add_exception_handler(kind, _on_error)
    app.add_exception_handler(Exception, _on_error)


async def _on_error(request: Request, error: Exception) -> Response:
    headers = {}
    if isinstance(error, QueueFullError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, EngineError):
        _log.error("%s %s failed: %s", request.method, request.url.path, error)
    status, body = describe(error)
    return error_response(status, body, headers)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {
        404: f"no route {request.method} {request.url.path}",
        405: f"{request.url.path} does not take {request.method}",
    }
    message = messages.get(error.status_code, error.detail)
    return http_error(error.status_code, message, dict(error.headers or {}))


async def _on_invalid(request: Request, error: Exception) -> Response:
    """Report the first fault alone, by its field; the faulty input is not sent back."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        message, param = f"the body is not valid JSON: {first['ctx']['error']}", None
    else:
        param = field_name(first["loc"][1:]) or None
        message = f"{param or 'the body'}: {first['msg']}"
    return error_response(400, error_body(message, "invalid_request_error", param, None))


def field_name(location: tuple[str | int, ...]) -> str:
    """("messages", 0, "role") -> "messages[0].role"."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return _sendable("".join(parts).removeprefix("."))[:100]


def _sendable(text: str) -> str:
    """Lone surrogates, which JSON may carry and UTF-8 may not, become question marks."""
    return text.encode(errors="replace").decode()
