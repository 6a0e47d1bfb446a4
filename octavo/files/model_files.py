"""Where a model's files are and what they say of themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from octavo.base.errors import ModelError
from octavo.files.gguf_header import GgufHeader


@dataclass(frozen=True)
class ModelFiles:
    """One model on disk: a folder in Hugging Face layout, or one GGUF file."""

    name: str  # short, for /v1/models and messages
    path: Path

    @property
    def is_gguf(self) -> bool:
        return self.path.suffix == ".gguf"

    @cached_property
    def gguf(self) -> GgufHeader:
        """Metadata and tensor directory of the GGUF file; reads no weights."""
        return GgufHeader.read(self.path)

    def json(self, name: str) -> dict[str, Any] | None:
        """The parsed JSON file `name` of the folder; None where there is none.

        Raises:
            ModelError: the file is not valid JSON, or no object.
        """
        file = self.path / name
        if self.is_gguf or not file.is_file():
            return None
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ModelError(f"{file} is not valid JSON: {error}") from error
        if not isinstance(found, dict):
            raise ModelError(f"{file} must hold a JSON object")
        return found
