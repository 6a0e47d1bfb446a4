"""Whether a checkpoint has exactly what a spec asks for."""

from __future__ import annotations

import fnmatch

from octavo.base.errors import ModelError
from octavo.models.facts import ModelFacts
from octavo.weights.checkpoint import Checkpoint

_SHOWN = 5

# Tensors that some files carry and nothing needs.
_HARMLESS = ("*.rotary_emb.inv_freq", "rope_freqs.weight")


def check(spec: ModelFacts, checkpoint: Checkpoint) -> None:
    """Raises ModelError naming the tensors that are missing, unknown, or of another shape."""
    shapes = checkpoint.shapes()
    wanted = spec.tensors
    _refuse("lacks", [name for name in wanted if name not in shapes])
    extra = [name for name in shapes if name not in wanted and not is_needless(spec, name)]
    _refuse("has unknown", extra)
    wrong = [
        f"{name} {list(shapes[name])} instead of {list(shape)}"
        for name, shape in wanted.items()
        if shapes[name] != shape
    ]
    _refuse("has misshapen", wrong)


def is_needless(spec: ModelFacts, name: str) -> bool:
    """Whether some files carry a tensor that no part of the model reads."""
    if spec.tied and name == "lm_head.weight":  # a copy of the embedding
        return True
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in (*_HARMLESS, *spec.needless))


def _refuse(verb: str, names: list[str]) -> None:
    if not names:
        return
    shown = ", ".join(sorted(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    raise ModelError(f"the checkpoint {verb} {_plural(len(names))}: {shown}")


def _plural(count: int) -> str:
    return f"{count} tensor" if count == 1 else f"{count} tensors"
