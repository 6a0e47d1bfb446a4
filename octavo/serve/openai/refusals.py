"""Fields outside the schemas: those that would change the answer are refused, others are logged.

A field is never dropped without a word.
"""

from __future__ import annotations

import json

from pydantic import BaseModel

from octavo.base.errors import RequestError
from octavo.base.log import logger

MAX_NAMES = 256  # unknown names remembered, so that clients cannot fill memory with them
_log = logger("serve")
_PARTS = ("stream_options", "repetition_detection", "structured_outputs")

# Name -> values that ask for nothing, besides null. Some are served by other routes.
UNSERVED: dict[str, tuple[object, ...]] = {
    "echo": (False,),
    "suffix": ("",),
    "tools": (),
    "tool_choice": ("none",),
    "functions": (),
    "function_call": ("none",),
    "audio": (),
    "modalities": (["text"],),
    "web_search_options": (),
    "verbosity": (),
    "store": (False,),
    "thinking_token_budget": (),
    "prompt_embeds": (),
    "truncate_prompt_tokens": (),
    "return_tokens_as_token_ids": (False,),
    "return_token_offsets": (False,),
    "return_prompt_text": (False,),
    "chat_template": (),
    "mm_processor_kwargs": (),
    "media_io_kwargs": (),
    "kv_transfer_params": (),
}

# Hints and labels that change nothing here.
HARMLESS = frozenset(
    {
        "include_obfuscation",
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
    }
)


class Refusals:
    """Judges the fields a schema does not name; remembers which names it has logged."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def check(self, body: BaseModel) -> None:
        """Raises:
        RequestError: a field asks for something that is not served.
        """
        for part in _PARTS:
            if (inner := getattr(body, part, None)) is not None:
                self.check(inner)
        for name, value in (body.model_extra or {}).items():
            if name in UNSERVED:
                _refuse_unless_idle(name, value)
            elif name not in HARMLESS:
                self._log_once(name[:64])

    def _log_once(self, name: str) -> None:
        if name not in self._logged and len(self._logged) < MAX_NAMES:
            self._logged.add(name)
            _log.warning("field %a is unknown and has no effect", name)


def _refuse_unless_idle(name: str, value: object) -> None:
    idle = UNSERVED[name]
    if value is None or value in idle:
        return
    but = f" except as {' or '.join(map(json.dumps, idle))}" if idle else ""
    raise RequestError(f"{name} is not supported by this server{but}", name)
