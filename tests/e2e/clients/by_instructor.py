"""instructor, by tools and by JSON Schema, whole and in parts."""

from __future__ import annotations

import json
from typing import Any

import instructor
import openai
from scripted import ASK, CALL, MODEL, URL, USER, User, says

WAYS = {
    instructor.Mode.TOOLS: CALL,
    instructor.Mode.TOOLS_STRICT: CALL,
    instructor.Mode.JSON_SCHEMA: USER,
    instructor.Mode.JSON: USER,
}


def asked(mode: instructor.Mode) -> tuple[Any, dict[str, Any]]:
    sdk = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
    client = instructor.from_openai(sdk, mode=mode)
    fields = {
        "model": MODEL,
        "messages": [{"role": "user", "content": ASK}],
        "extra_body": says(WAYS[mode]),
        "max_retries": 0,
    }
    return client.chat.completions, fields


found = {}
for mode in WAYS:
    completions, fields = asked(mode)
    whole = completions.create(response_model=User, **fields)
    parts = list(completions.create_partial(response_model=User, **fields))
    found[mode.name] = {
        "whole": whole.model_dump(),
        "last": parts[-1].model_dump(),
        "parts": len(parts),
    }
print(json.dumps(found))
