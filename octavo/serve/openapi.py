"""/openapi.json: requests are described by pydantic, answers by their msgspec structs."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from octavo.serve.errors import ErrorBody
from octavo.serve.openai import wire

_REF = "#/components/schemas/{name}"
_ANSWERS = (
    wire.ChatCompletion,
    wire.ChatChunk,
    wire.Completion,
    wire.CacheReport,
    wire.ModelList,
    wire.Tokenized,
    wire.Detokenized,
    wire.Health,
    ErrorBody,
)


def answers(
    kind: type[msgspec.Struct], chunk: type[msgspec.Struct] | None = None
) -> dict[int | str, dict[str, Any]]:
    """What a route may answer: `kind`, events of `chunk` where it streams, an error object."""
    content = {"application/json": {"schema": _ref(kind)}}
    if chunk is not None:
        content["text/event-stream"] = {"schema": _ref(chunk)}
    error = {"content": {"application/json": {"schema": _ref(ErrorBody)}}}
    return {
        200: {"description": "The answer", "content": content},
        "4XX": {"description": "The client's fault", **error},
        "5XX": {"description": "The server's fault", **error},
    }


class DescribedApp(FastAPI):
    """FastAPI, with the answers' schemas among the components."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        _, schemas = msgspec.json.schema_components(_ANSWERS, ref_template=_REF)
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
        return document


def _ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}
