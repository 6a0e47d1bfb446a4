"""Command-line flags made from settings, so that each option is stated once."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from octavo.base.settings import TYPES


def add_flags(parser: argparse.ArgumentParser, part: type, skip: Sequence[str] = ()) -> None:
    """A flag for each field of the settings class `part` that has a help text."""
    group = parser.add_argument_group(part.__name__.removesuffix("Settings").lower())
    for field in _options(part):
        if field.name in skip:
            continue
        flag = "--" + field.name.replace("_", "-")
        shown = "" if field.default is None else " (default: %(default)s)"
        common: dict[str, Any] = {
            "default": field.default,
            "help": field.metadata["help"] + shown,
            "dest": field.name,
        }
        if field.type == "bool":
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        else:
            kind = TYPES[str(field.type).split(" |")[0]]
            choices = field.metadata.get("choices")
            metavar = None if choices else field.name.split("_")[-1].upper()
            group.add_argument(flag, type=kind, choices=choices, metavar=metavar, **common)


def take(options: argparse.Namespace, *parts: type) -> dict[str, Any]:
    """The values of the flags that belong to `parts`, by field name."""
    names = {field.name for part in parts for field in _options(part)}
    return {name: value for name, value in vars(options).items() if name in names}


def spell(values: dict[str, Any]) -> list[str]:
    """Values by field name -> the command line that gives them; None is left out."""
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words


def _options(part: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(part) if "help" in field.metadata]
