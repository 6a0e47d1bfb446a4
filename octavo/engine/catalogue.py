"""Which models run, by which way, and why not: of all that are known, or of one that is there."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

from octavo.base.errors import OctavoError
from octavo.base.settings import EngineSettings
from octavo.engine.resolved import resolve
from octavo.fallback import census
from octavo.files.model_files import ModelFiles
from octavo.models.catalogue import NATIVE, TEXT_PARTS
from octavo.models.families import model_config, outer_type
from octavo.models.gguf_architectures import ARCHITECTURES

WAYS = ("native", "torch", "transformers")  # values of --model-impl


@dataclass(frozen=True)
class Found:
    """One model. `refused`: by way, why it does not go that way."""

    name: str
    model_type: str
    models: str  # of which family it is
    whole: str | None = None  # type of the model whose text part this is
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        return len(self.refused) < len(WAYS)

    def __str__(self) -> str:
        kind = self.model_type + (f" ({self.models})" if self.models else "")
        part = f"text part of {self.whole}, " if self.whole else ""
        lines = [f"{self.name}: {part}{kind}"]
        for way in WAYS:
            lines.append(f"  --model-impl {way:14}{self._said(way)}")
        return "\n".join(lines)

    def _said(self, way: str) -> str:
        if way not in self.refused:
            return "yes"
        why = self.refused[way]
        same = way == "torch" and why == self.refused.get("native")
        return "no: as above" if same else f"no: {why}"


def examine(files: ModelFiles) -> Found:
    """A model whose files are there. Reads headers; a class of Transformers is tested by a tiny
    copy.

    Raises:
        ModelError: it has no config.
    """
    model_type = str(model_config(files).get("model_type", "no model_type"))
    family = NATIVE.get(model_type)
    reasons = {way: _why_not(files, way) for way in WAYS}
    return Found(
        files.name,
        model_type,
        family.models if family else "",
        outer_type(files),
        {way: why for way, why in reasons.items() if why},
    )


def _why_not(files: ModelFiles, way: str) -> str:
    """Why an engine would not compute the model that way; "" where it would."""
    device = "cpu" if way == "native" else "auto"
    try:
        resolve(EngineSettings.flat(model=files.name, model_impl=way, device=device), files)
    except OctavoError as error:
        return str(error)
    return ""


def native_table() -> list[tuple[str, str, str]]:
    """Models, model_type, and GGUF's architectures, by the models' names."""
    gguf: dict[str, list[str]] = {}
    for name, architecture in ARCHITECTURES.items():
        for model_type in (architecture.model_type, *architecture.also):
            gguf.setdefault(model_type, []).append(name)
    rows = [
        (family.models, model_type, ", ".join(gguf.get(model_type, [])))
        for model_type, family in NATIVE.items()
    ]
    return sorted(rows, key=lambda row: row[0].lower())


def others() -> tuple[list[str], dict[str, str]]:
    """Types that no family file describes: those that Transformers computes; and why not the
    rest."""
    table = {n: why for n, why in census.table().items() if TEXT_PARTS.get(n, n) not in NATIVE}
    return [n for n, why in table.items() if not why], {n: w for n, w in table.items() if w}


def _summary(served: list[str], refused: dict[str, str]) -> str:
    known, encoders = len(census.table()), len(census.as_decoders())
    own = known - len(served) - len(refused)
    return (
        f"Of the {known} types of causal language models in Transformers 5.24, Octavo computes "
        f"{own} itself, {len(served)} through Transformers ({encoders} of them encoders, which it "
        f"computes as decoders), and {len(refused)} not."
    )


def _served() -> list[tuple[str, list[str]]]:
    """What Transformers computes, under headings."""
    encoders, (served, _) = census.as_decoders(), others()
    decoders = [name for name in served if name not in encoders]
    return [
        ("Through Transformers", decoders),
        ("Encoders, as a decoder, where their config says `is_decoder`", encoders),
        ("The text part of models that also read images or sound", sorted(TEXT_PARTS)),
    ]


def markdown() -> str:
    """The tables of docs/models.md."""
    lines = ["| models | `model_type` | GGUF |", "|---|---|---|"]
    lines += [f"| {models} | `{kind}` | {gguf} |" for models, kind, gguf in native_table()]
    served, refused = others()
    lines += ["", _summary(served, refused)]
    for heading, names in _served():
        lines += ["", f"**{heading}:**", *textwrap.wrap(", ".join(names), 100)]
    lines += ["", "**Not served:**", "", "| `model_type` | why |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in refused.items()]
    return "\n".join(lines) + "\n"


def text() -> str:
    """The same for a terminal."""
    rows, (served, refused) = [("models", "model_type", "GGUF"), *native_table()], others()
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["Computed by Octavo, on CPU and GPU:"]
    lines += [
        "  " + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
    ]
    for heading, names in _served():
        lines += ["", f"{heading.replace('`', '')}:"]
        lines += textwrap.wrap(" ".join(names), 96, initial_indent="  ", subsequent_indent="  ")
    lines += ["", "Not served:"]
    lines += [f"  {name}: {why}" for name, why in refused.items()]
    lines += ["", *textwrap.wrap(_summary(served, refused), 96)]
    lines += [
        "",
        "`octavo models MODEL` looks at one model: a short name, folder, file or hub id.",
    ]
    return "\n".join(lines) + "\n"
