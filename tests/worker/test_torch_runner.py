"""The memory plan is what is allocated."""

from __future__ import annotations

import pytest
import torch
from tiny_models import DENSE, tiny_model

from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.models.memory import ITEMSIZE, kv_layout, weight_bytes
from octavo.weights.open import open_checkpoint
from octavo.worker.torch_runner import TorchRunner


@pytest.mark.parametrize(
    ("dtype", "kv_dtype"),
    [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "int8")],
)
@pytest.mark.parametrize("family", DENSE)
def test_bytes_planned_are_bytes_allocated(family, dtype, kv_dtype, tmp_path):
    tiny_model(tmp_path, family)
    files = ModelFiles("tiny", tmp_path)
    spec = model_spec(files, kv_dtype)
    layout = kv_layout(spec.kv_groups, 16, 3_000_000)
    checkpoint = open_checkpoint(files, "auto", spec, 0)
    runner = TorchRunner(spec, layout, checkpoint, dtype, kv_dtype, "cpu")
    kv = sum(pool.nbytes for pool in runner.attention.pools)
    assert kv == layout.total_bytes <= 3_000_000
    tensors = {t.data_ptr(): t.nbytes for t in held(runner._model)}
    assert sum(tensors.values()) == weight_bytes(spec, ITEMSIZE[dtype])


def held(node, seen=None):
    """Every tensor reachable from a module."""
    seen = set() if seen is None else seen
    if isinstance(node, torch.Tensor):
        yield node
    elif isinstance(node, (list, tuple)):
        for child in node:
            yield from held(child, seen)
    elif type(node).__module__.startswith("octavo.layers") and id(node) not in seen:
        seen.add(id(node))
        for child in vars(node).values():
            yield from held(child, seen)
