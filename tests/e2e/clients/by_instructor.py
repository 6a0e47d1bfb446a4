"""instructor, by tools and by JSON Schema, whole and in parts."""

from __future__ import annotations

import json
from typing import Any

import instructor
import openai
from scripted import ASK, MODEL, URL, USER, User, call, says

Mode = instructor.Mode
TOOLS = (Mode.TOOLS, Mode.TOOLS_STRICT)
JSON = (Mode.JSON_SCHEMA, Mode.JSON)


def asked(mode: Mode, text: str) -> tuple[Any, dict[str, Any]]:
    sdk = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
    fields = {
        "model": MODEL,
        "messages": [{"role": "user", "content": ASK}],
        "response_model": User,
        "extra_body": says(text),
        "max_retries": 0,
        "max_tokens": 400,
    }
    return instructor.from_openai(sdk, mode=mode).chat.completions, fields


found = {}
for mode in TOOLS + JSON:
    completions, fields = asked(mode, call("User") if mode in TOOLS else USER)
    whole = completions.create(**fields)
    # The class of the parts, and so the tool, has a name of its own.
    completions, fields = asked(mode, call("PartialUser") if mode in TOOLS else USER)
    *parts, last = completions.create_partial(**fields)
    found[mode.name] = {
        "whole": whole.model_dump(),
        "last": last.model_dump(),
        "parts": len(parts),
    }
print(json.dumps(found))
