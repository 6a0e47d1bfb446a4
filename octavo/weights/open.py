"""The checkpoint of a model, whatever its format, checked against the model's spec."""

from __future__ import annotations

from octavo.files.model_files import ModelFiles
from octavo.models.config import text_part
from octavo.models.quantization import int8_scheme, is_mxfp4
from octavo.models.spec import ModelSpec
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.compressed_tensors import CompressedTensorsCheckpoint
from octavo.weights.dummy import DummyCheckpoint
from octavo.weights.gguf_file import GgufCheckpoint
from octavo.weights.match import check
from octavo.weights.mxfp4_files import Mxfp4Checkpoint
from octavo.weights.safetensors_files import SafetensorsCheckpoint
from octavo.weights.text_part import TextPart


def open_checkpoint(files: ModelFiles, load_format: str, spec: ModelSpec, seed: int) -> Checkpoint:
    """Open the weights; reads headers only. `load_format` "dummy" gives random weights by `seed`.

    Raises:
        ModelError: a file is missing or broken, or its tensors are not those of the spec.
    """
    if load_format == "dummy":
        return DummyCheckpoint(spec, seed)
    checkpoint = GgufCheckpoint(files, spec) if files.is_gguf else open_safetensors(files)
    if text_part(files.json("config.json") or {}) is not None:
        checkpoint = TextPart(checkpoint)
    check(spec, checkpoint)
    return checkpoint


def open_safetensors(files: ModelFiles) -> Checkpoint:
    """A folder's tensors, whatever model they belong to; reads headers only.

    Raises:
        ModelError: a file is missing or broken, or quantised in a way that is not understood.
    """
    tensors = SafetensorsCheckpoint.open(files)
    config = files.json("config.json") or {}
    if is_mxfp4(config):
        return Mxfp4Checkpoint(tensors)
    scheme = int8_scheme(config)
    return tensors if scheme is None else CompressedTensorsCheckpoint(tensors, scheme)
