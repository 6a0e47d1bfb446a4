"""A checkpoint must have exactly the spec's tensors; dummy weights always do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.models.llama import llama
from octavo.weights.checkpoint import RawTensor
from octavo.weights.dummy import DummyCheckpoint
from octavo.weights.match import check
from octavo.weights.open import open_checkpoint

CONFIG = {
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
UP = "model.layers.1.mlp.up_proj.weight"


class Shapes:
    """A checkpoint that is nothing but shapes."""

    def __init__(self, shapes: dict[str, Any]) -> None:
        self._shapes = shapes

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._shapes

    def read(self, name: str) -> RawTensor:
        raise AssertionError(f"{name} must not be read")


def shapes_of(config: dict[str, Any]) -> dict[str, Any]:
    return {param.name: param.shape for param in llama(config, "float32").params()}


def test_exact_match_passes() -> None:
    check(llama(CONFIG, "float32"), Shapes(shapes_of(CONFIG)))


def test_missing_is_named() -> None:
    shapes = shapes_of(CONFIG)
    del shapes[UP]
    with pytest.raises(ModelError, match=f"lacks 1 tensor: {UP}"):
        check(llama(CONFIG, "float32"), Shapes(shapes))


def test_missing_many_are_counted_and_five_named() -> None:
    with pytest.raises(ModelError, match=r"lacks 21 tensors: (\S+, ){5}\.\.\.$"):
        check(llama(CONFIG, "float32"), Shapes({}))


def test_extra_is_named() -> None:
    shapes = shapes_of(CONFIG) | {"model.layers.2.mlp.up_proj.weight": (16, 8)}
    with pytest.raises(ModelError, match=r"unknown 1 tensor: model\.layers\.2"):
        check(llama(CONFIG, "float32"), Shapes(shapes))


def test_wrong_shape_is_named() -> None:
    shapes = shapes_of(CONFIG) | {UP: (8, 16)}
    with pytest.raises(ModelError, match=rf"{UP} \[8, 16\] instead of \[16, 8\]"):
        check(llama(CONFIG, "float32"), Shapes(shapes))


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "rope_freqs.weight"]
)
def test_harmless_extras_are_ignored(name: str) -> None:
    check(llama(CONFIG, "float32"), Shapes(shapes_of(CONFIG) | {name: (4,)}))


def test_a_tied_head_may_be_stored_too() -> None:
    config = {**CONFIG, "tie_word_embeddings": True}
    shapes = shapes_of(config)
    assert "lm_head.weight" not in shapes
    check(llama(config, "float32"), Shapes(shapes | {"lm_head.weight": (32, 8)}))


def test_an_untied_head_must_be_there() -> None:
    shapes = shapes_of({**CONFIG, "tie_word_embeddings": True})
    with pytest.raises(ModelError, match=r"lm_head\.weight"):
        check(llama(CONFIG, "float32"), Shapes(shapes))


def test_dummy_weights(tmp_path: Path) -> None:
    spec = llama(CONFIG, "float32")
    files = ModelFiles("nothing", tmp_path)
    first, again = (open_checkpoint(files, "dummy", spec, seed=3) for _ in range(2))
    check(spec, first)
    for name, shape in first.shapes().items():
        array = first.read(name).array
        assert array.shape == shape
        np.testing.assert_array_equal(array, again.read(name).array)
    assert (first.read("model.norm.weight").array == 1).all()
    assert 0.015 < first.read(UP).array.std() < 0.025
    other = DummyCheckpoint(spec, seed=4)
    assert not np.array_equal(other.read(UP).array, first.read(UP).array)
    assert not np.array_equal(first.read(UP.replace("up", "gate")).array, first.read(UP).array)
