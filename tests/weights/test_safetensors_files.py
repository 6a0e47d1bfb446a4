"""Safetensors checkpoints: what is read, and each way a folder can be broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import DENSE, tiny_model

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.weights.checkpoint import to_float32
from octavo.weights.open import open_checkpoint
from octavo.weights.safetensors_files import INDEX, SINGLE, SafetensorsCheckpoint


def files_of(folder: Path) -> ModelFiles:
    return ModelFiles("tiny", folder)


def read_all(folder: Path) -> dict[str, np.ndarray]:
    checkpoint = SafetensorsCheckpoint.open(files_of(folder))
    return {name: to_float32(checkpoint.read(name)) for name in checkpoint.shapes()}


def write_single(path: Path, header: Any, data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("family", DENSE)
def test_two_shards_have_exactly_the_spec(tmp_path: Path, family: str) -> None:
    model = tiny_model(tmp_path, family)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    files = files_of(tmp_path)
    spec = model_spec(files, "float32")
    checkpoint = open_checkpoint(files, "auto", spec, 0)
    assert checkpoint.shapes() == {param.name: param.shape for param in spec.params()}
    for name in checkpoint.shapes():
        expected = model.state_dict()[name].numpy()
        np.testing.assert_array_equal(to_float32(checkpoint.read(name)), expected, err_msg=name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtypes_in_one_file(tmp_path: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import save_file

    tensor = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
    save_file({"odd": torch.zeros(1, dtype=torch.float16), "x": tensor}, tmp_path / SINGLE)
    raw = SafetensorsCheckpoint.open(files_of(tmp_path)).read("x")
    assert raw.dtype == dtype
    assert not raw.array.flags.writeable
    np.testing.assert_array_equal(to_float32(raw), tensor.float().numpy())


def test_unaligned_data_is_read(tmp_path: Path) -> None:
    header = {
        "a": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [2, 10]},
    }
    write_single(tmp_path / SINGLE, header, b"\0\0" + np.array([1.5, -2], np.float32).tobytes())
    assert read_all(tmp_path)["b"].tolist() == [1.5, -2]


def test_missing_shard_is_named(tmp_path: Path) -> None:
    tiny_model(tmp_path, "llama")
    shard = max(tmp_path.glob("*.safetensors"))
    shard.unlink()
    with pytest.raises(ModelError, match=f"{shard.name} is missing"):
        read_all(tmp_path)


def test_index_promising_more_than_a_shard_has(tmp_path: Path) -> None:
    tiny_model(tmp_path, "llama")
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"]["model.ghost.weight"] = min(index["weight_map"].values())
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"lacks model\.ghost\.weight"):
        read_all(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_cut_short(tmp_path: Path, keep: int) -> None:
    tiny_model(tmp_path, "llama")
    shard = min(tmp_path.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(ModelError, match=shard.name):
        read_all(tmp_path)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"dtype": "F8_E4M3"}, "x has dtype F8_E4M3"),
        ({"shape": [3]}, "x has 8 bytes"),
        ({"shape": [-1, -2]}, "x has 8 bytes"),
        ({"data_offsets": [8, 0]}, "cut short"),
        ({"data_offsets": [0, 16]}, "cut short"),
        ({"data_offsets": "?"}, "broken entry for x"),
        ({"shape": None}, "broken entry for x"),
    ],
)
def test_broken_entries(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    write_single(tmp_path / SINGLE, {"x": {**ENTRY, **change}}, bytes(8))
    with pytest.raises(ModelError, match=word):
        read_all(tmp_path)


@pytest.mark.parametrize("header", [[], "text", 3])
def test_broken_headers(tmp_path: Path, header: Any) -> None:
    write_single(tmp_path / SINGLE, header, b"")
    with pytest.raises(ModelError, match="broken header"):
        read_all(tmp_path)


def test_header_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / SINGLE).write_bytes((5).to_bytes(8, "little") + b"{oops")
    with pytest.raises(ModelError, match="broken header"):
        read_all(tmp_path)


@pytest.mark.parametrize("index", [{}, {"weight_map": {"x": 3}}])
def test_broken_index(tmp_path: Path, index: Any) -> None:
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match="weight_map"):
        read_all(tmp_path)
