"""One registry form: a name leads to "module:attribute", imported when chosen."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Registry:
    """Names of one kind of thing, each with where it lives."""

    def __init__(self, kind: str, places: dict[str, str]) -> None:
        self.kind = kind
        self._places = places

    def load(self, name: str) -> Any:
        """Raises KeyError with the known names where `name` is none of them."""
        if name not in self._places:
            raise KeyError(f"unknown {self.kind} {name!r}; known: {', '.join(self._places)}")
        module, attribute = self._places[name].split(":")
        return getattr(import_module(module), attribute)
