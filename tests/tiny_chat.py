"""A tiny random model that has a tokenizer and a chat template: all that a server needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_models import tiny_model
from vocabularies import byte_level

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_chat_model(folder: Path, **overrides: Any) -> Path:
    """A Llama of 640 ids or more in `folder`."""
    tiny_model(folder, "llama", **({"vocab_size": 640} | overrides))
    byte_level().save(str(folder / "tokenizer.json"))
    config = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
