"""One thing that was looked at, and a report of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Finding:
    """`advice` is one line on what to do, where there is something to do."""

    level: Level
    name: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f"\n{'':27}-> {self.advice}" if self.advice else ""
        return f"{self.level:<9}{self.name:<18}{self.text}{advice}"


def ok(name: str, text: str) -> Finding:
    return Finding("ok", name, text)


def warning(name: str, text: str, advice: str) -> Finding:
    return Finding("warning", name, text, advice)


def wrong(name: str, text: str, advice: str) -> Finding:
    return Finding("wrong", name, text, advice)


def summary(findings: Sequence[Finding]) -> str:
    counts = {level: sum(f.level == level for f in findings) for level in ("warning", "wrong")}
    if not any(counts.values()):
        return "All is well."
    return f"{counts['wrong']} wrong, {counts['warning']} to be warned of."
