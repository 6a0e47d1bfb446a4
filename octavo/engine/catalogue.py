"""Which models run, by which way, and why not: of all that are known, or of one that is there."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

from octavo.base.errors import ModelError, OctavoError
from octavo.engine.hardware import require_torch, require_transformers
from octavo.fallback import census
from octavo.files.model_files import ModelFiles
from octavo.models.catalogue import NATIVE, TEXT_PARTS
from octavo.models.families import model_config, model_spec
from octavo.models.gguf_architectures import ARCHITECTURES
from octavo.weights.open import open_checkpoint, open_safetensors

WAYS = ("native", "torch", "transformers")  # values of --model-impl


@dataclass(frozen=True)
class Found:
    """One model. `refused`: by way, why it does not go that way."""

    name: str
    model_type: str
    models: str  # of which family it is
    refused: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.model_type}" + (f" ({self.models})" if self.models else "")]
        for way in WAYS:
            lines.append(f"  {way:14}{self.refused.get(way, 'yes')}")
        return "\n".join(lines)


def examine(files: ModelFiles) -> Found:
    """A model whose files are there. Reads headers; a class of Transformers is tested by a tiny
    copy.

    Raises:
        ModelError: it has no config.
    """
    model_type = str(model_config(files).get("model_type"))
    family = NATIVE.get(model_type)
    own = _why_not(lambda: _own(files))
    refused = {
        "native": own,
        "torch": own or _why_not(lambda: require_torch("it")),
        "transformers": _why_not(lambda: _transformers(files)),
    }
    return Found(
        files.name,
        model_type,
        family.models if family else "",
        {way: why for way, why in refused.items() if why},
    )


def _why_not(way: Callable[[], object]) -> str:
    """Why a way is not open; "" where it is."""
    try:
        way()
    except OctavoError as error:
        return str(error)
    return ""


def _own(files: ModelFiles) -> None:
    """Raises OctavoError where Octavo's own layers do not compute a model."""
    open_checkpoint(files, "auto", model_spec(files, "bfloat16"), 0)


def _transformers(files: ModelFiles) -> None:
    """Raises OctavoError where Transformers does not."""
    if files.is_gguf:
        raise ModelError("reads folders, not GGUF files")
    require_transformers("it")
    from octavo.fallback.model import examine as fallback

    fallback(files, open_safetensors(files), "float32", "float32", False, None)


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
    known = len(census.table())
    own = known - len(served) - len(refused)
    return (
        f"Of the {known} types of causal language models in Transformers 5.24, Octavo computes "
        f"{own} itself, {len(served)} through Transformers, and {len(refused)} not."
    )


def markdown() -> str:
    """The tables of docs/models.md."""
    lines = ["| models | `model_type` | GGUF |", "|---|---|---|"]
    lines += [f"| {models} | `{kind}` | {gguf} |" for models, kind, gguf in native_table()]
    served, refused = others()
    lines += ["", _summary(served, refused), "", "**Through Transformers:**"]
    lines += textwrap.wrap(", ".join(served), 100)
    lines += ["", "**Not served:**", "", "| `model_type` | why |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in refused.items()]
    return "\n".join(lines) + "\n"


def text() -> str:
    """The same for a terminal."""
    rows, (served, refused) = [("models", "model_type", "GGUF"), *native_table()], others()
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["computed by Octavo, on CPU and GPU:"]
    lines += ["  " + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in rows]
    lines += ["", "computed by Transformers, with paged KV:"]
    lines += textwrap.wrap(" ".join(served), 96, initial_indent="  ", subsequent_indent="  ")
    lines += ["", "not served:"]
    lines += [f"  {name}: {why}" for name, why in refused.items()]
    return "\n".join([*lines, "", *textwrap.wrap(_summary(served, refused), 96)]) + "\n"
