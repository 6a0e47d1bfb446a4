"""What the client programs share: the server they were told of, and what its model is to say.

They run in an environment of their own, as these libraries want other versions of what Octavo's
tests use. Each prints one JSON object.
"""

from __future__ import annotations

import sys
from typing import Any

import httpx
from pydantic import BaseModel

URL = sys.argv[1]
MODEL = "tiny"
ASK = "Who is it?"
USER = '{"name": "Ann Lee", "age": 41, "tags": ["a", "b"]}'


def call(name: str, arguments: str = USER) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


class User(BaseModel):
    """Somebody."""

    name: str
    age: int
    tags: list[str]


def says(text: str) -> dict[str, Any]:
    """Fields of a request whose answer is `text`: the server's processor `script` sees to it."""
    body = {"prompt": f"{text}<|im_end|>", "add_special_tokens": False}
    ids = httpx.post(f"{URL}/tokenize", json=body).raise_for_status().json()["tokens"]
    return {"logits_processors": ["script"], "extra_args": {"script": ids}}
