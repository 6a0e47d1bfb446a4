"""What was found, as a table with a certificate below, and as JSON."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from octavo.engine.hardware import cpu_flags, cpu_model
from octavo.verify.matrix import Column, Outcome

FLAGS = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")
ARM_FLAGS = ("asimd", "asimddp", "i8mm", "bf16", "sve")


@dataclass(frozen=True)
class Report:
    """Columns, and formats that the model cannot be had in, with the reason."""

    model: str
    columns: list[Column]
    refused: dict[str, str]
    quick: bool
    date: datetime

    @property
    def holds(self) -> bool:
        outcomes = self._outcomes()
        return any(o.held for o in outcomes) and not any(o.failure for o in outcomes)

    def text(self) -> str:
        return "\n\n".join(filter(None, (self._table(), self._notes(), self._certificate())))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "holds": self.holds,
            "quick": self.quick,
            "formats": [
                {
                    "name": column.name,
                    "weight_format": column.info.weight_format,
                    "dtype": column.info.dtype,
                    "kv_dtype": column.info.kv_dtype,
                    "cells": [
                        asdict(outcome) | {"held": outcome.held} for outcome in column.outcomes
                    ],
                }
                for column in self.columns
            ],
            "refused": self.refused,
            "certificate": dict(self._facts()),
        }

    def _outcomes(self) -> list[Outcome]:
        return [outcome for column in self.columns for outcome in column.outcomes]

    def _table(self) -> str:
        names = [outcome.cell for outcome in self.columns[0].outcomes] if self.columns else []
        left = max(map(len, [*names, "alone, and"])) + 2
        widths = [max(len(column.name), 6) + 2 for column in self.columns]
        heads = (f"{c.name:>{w}}" for c, w in zip(self.columns, widths, strict=True))
        lines = [f"{'alone, and':{left}}" + "".join(heads)]
        for n, name in enumerate(names):
            cells = (_word(column.outcomes[n]) for column in self.columns)
            line = "".join(f"{cell:>{w}}" for cell, w in zip(cells, widths, strict=True))
            lines.append(f"{name:{left}}{line}")
        return "\n".join(lines)

    def _notes(self) -> str:
        lines = [f"{name}: {reason}" for name, reason in self.refused.items()]
        for column in self.columns:
            for outcome in column.outcomes:
                if (why := outcome.failure or outcome.why_not) is not None:
                    lines.append(f"{outcome.cell} ({column.name}) {_word(outcome)}: {why}")
        return "\n".join(lines)

    def _certificate(self) -> str:
        verdict = "every cell holds, bit for bit" if self.holds else "NOT every cell holds"
        lines = [f"{name:<10}{fact}" for name, fact in self._facts()]
        return "\n".join([f"certificate: {verdict}", *lines])

    def _facts(self) -> list[tuple[str, str]]:
        if not self.columns:
            return []
        info = self.columns[0].info
        kernels = {column.kernels for column in self.columns}
        return [
            ("model", f"{self.model} ({info.family}), weights {info.epoch}"),
            ("formats", "; ".join(column.name for column in self.columns)),
            ("runner", info.runner),
            ("kernels", ", ".join(sorted(kernels))),
            ("CPU", _cpu()),
            ("versions", _versions()),
            ("compared", self._compared()),
            ("date", f"{self.date:%Y-%m-%d %H:%M} UTC"),
        ]

    def _compared(self) -> str:
        ran = [o for o in self._outcomes() if o.why_not is None]
        counts = {
            "cells": len(ran),
            "requests": sum(o.requests for o in ran),
            "answers": sum(o.answers for o in ran),
            "tokens": sum(o.tokens for o in ran),
            "logprobs": sum(o.logprobs for o in ran),
        }
        scale = "quick" if self.quick else "full"
        return f"{scale}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items())


def now() -> datetime:
    return datetime.now(UTC)


def _word(outcome: Outcome) -> str:
    if outcome.why_not is not None:
        return "-"
    return "FAILED" if outcome.failure else "ok"


def _cpu() -> str:
    has = cpu_flags()
    flags = [flag for flag in (*FLAGS, *ARM_FLAGS) if flag in has]
    return f"{cpu_model()}: {' '.join(flags) or platform.machine()}"


def _versions() -> str:
    python, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    return f"octavo {version('octavo')}, numpy {version('numpy')}, Python {python}, {system}"
