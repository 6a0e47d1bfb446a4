"""The shape that a client wants an answer to have, in whichever of the API's ways it says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from octavo.base.errors import RequestError
from octavo.base.sampling_params import SamplingParams
from octavo.base.structured import KINDS, StructuredOutputsParams
from octavo.serve.generation import Generation
from octavo.serve.openai.schemas import SamplingBody
from octavo.serve.openai.shapes import ResponseFormat, StructuredOutputs

_GUIDED = ("json", "regex", "choice", "grammar")
_OPTIONS = ("whitespace_pattern", "disable_any_whitespace", "close_in_time")


@dataclass(frozen=True)
class Structure:
    """What is asked for, and the client's own name of the field that asks."""

    params: StructuredOutputsParams
    field: str


def structure(body: SamplingBody) -> Structure | None:
    """None: the answer may be any text.

    Raises:
        RequestError: a shape is asked for in several ways, or in one that means nothing.
    """
    ways = _ways(body)
    if len(ways) > 1:
        raise RequestError(f"an answer has one shape; given are {' and '.join(ways)}", [*ways][1])
    if not ways and body.structured_outputs is None:
        return None
    field, asked = next(iter(ways.items()), ("structured_outputs", {}))
    with blamed_on(field):
        return Structure(StructuredOutputsParams(**asked, **_options(body)), field)


def fields_of(shape: Structure | None) -> dict[str, Any]:
    """For `SamplingParams`."""
    return {} if shape is None else {"structured_outputs": shape.params}


async def check_shape(
    generation: Generation, params: SamplingParams, shape: Structure | None
) -> None:
    """Raises:
    RequestError: no answer can have the shape, or it takes too long to find out.
    """
    if shape is not None:
        with blamed_on(shape.field):
            await generation.check_structure(params)


@contextmanager
def blamed_on(field: str) -> Iterator[None]:
    """A refusal names the field as the client knows it."""
    try:
        yield
    except RequestError as error:
        raise RequestError(str(error), field) from error


def _ways(body: SamplingBody) -> dict[str, dict[str, Any]]:
    """The field that asks for a shape -> the shape, for each that does."""
    found: dict[str, Any] = {}
    if body.response_format is not None and body.response_format.type != "text":
        found["response_format"] = _of_format(body.response_format)
    for kind in KINDS:
        value = _structured(body.structured_outputs, kind)
        if value is not None and (kind, value) != ("json_object", False):
            found[f"structured_outputs.{kind}"] = {kind: value}
    for kind in _GUIDED:
        if (value := getattr(body, f"guided_{kind}")) is not None:
            found[f"guided_{kind}"] = {kind: value}
    return found


def _of_format(asked: ResponseFormat) -> dict[str, Any]:
    if asked.type == "json_object":
        return {"json_object": True}
    if asked.type == "structural_tag":
        return {"structural_tag": asked.model_dump(exclude_unset=True)}
    if asked.json_schema is None or asked.json_schema.schema_ is None:
        raise RequestError(
            "response_format of type json_schema needs json_schema.schema", "response_format"
        )
    return {"json": asked.json_schema.schema_}


def _options(body: SamplingBody) -> dict[str, Any]:
    found = {name: _structured(body.structured_outputs, name) for name in _OPTIONS}
    if body.guided_whitespace_pattern is not None:
        found["whitespace_pattern"] = body.guided_whitespace_pattern
    return {name: value for name, value in found.items() if value is not None}


def _structured(given: StructuredOutputs | None, name: str) -> Any:
    return None if given is None else getattr(given, "json_" if name == "json" else name)
