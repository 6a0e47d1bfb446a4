"""What is wrong with a schema, and where."""

from __future__ import annotations

from octavo.base.errors import RequestError


class SchemaError(RequestError):
    """A schema that is wrong, or that no grammar can say exactly. `pointer` is where, as in
    "#/properties/a"; the message names the keyword."""

    def __init__(self, pointer: str, problem: str) -> None:
        super().__init__(f"json: {pointer}: {problem}", "json")
        self.pointer = pointer
