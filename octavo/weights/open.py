"""The checkpoint of a model, whatever its format, checked against the model's spec."""

from __future__ import annotations

from octavo.files.model_files import ModelFiles
from octavo.models.spec import ModelSpec
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.dummy import DummyCheckpoint
from octavo.weights.gguf_file import GgufCheckpoint
from octavo.weights.match import check
from octavo.weights.safetensors_files import SafetensorsCheckpoint


def open_checkpoint(files: ModelFiles, load_format: str, spec: ModelSpec, seed: int) -> Checkpoint:
    """Open the weights; reads headers only. `load_format` "dummy" gives random weights by `seed`.

    Raises:
        ModelError: a file is missing or broken, or its tensors are not those of the spec.
    """
    if load_format == "dummy":
        return DummyCheckpoint(spec, seed)
    checkpoint: Checkpoint = (
        GgufCheckpoint(files, spec) if files.is_gguf else SafetensorsCheckpoint.open(files)
    )
    check(spec, checkpoint)
    return checkpoint
