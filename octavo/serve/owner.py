"""Whose a request is: that of the bearer key it came with.

Every key is taken as it comes; a check of keys belongs here, before the owner is named.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Depends, Request


async def owner_of(http: Request) -> str:
    """The key's digest, as the key itself is nobody's to keep; "" for requests without one."""
    scheme, _, key = http.headers.get("authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        return ""
    return hashlib.sha256(key.encode()).hexdigest()


Owner = Annotated[str, Depends(owner_of)]
