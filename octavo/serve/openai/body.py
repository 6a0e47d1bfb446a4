"""What all schemas of requests share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, WrapValidator
from pydantic_core import PydanticCustomError, ValidationError


class Body(BaseModel):
    """Unknown fields are kept aside, for `refusals` to judge. NaN and infinities are refused."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, protected_namespaces=())


def said_as(expected: str) -> WrapValidator:
    """Of a union, pydantic reports each branch's complaint; this says once what is expected."""

    def check(value: Any, inner: Any) -> Any:
        try:
            return inner(value)
        except ValidationError as error:
            raise PydanticCustomError("shape", "must be {want}", {"want": expected}) from error

    return WrapValidator(check)
