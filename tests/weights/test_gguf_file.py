"""GGUF files written as the converter writes them, read back by Hugging Face names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tiny_gguf import permute, tiny_gguf
from tiny_models import tiny_model

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.models.qwen import qwen2
from octavo.weights.checkpoint import to_float32
from octavo.weights.gguf_file import GgufCheckpoint, unpermute
from octavo.weights.open import open_checkpoint

# What the gguf package can write; the rest it only reads.
WRITABLE = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]

CONFIG = {
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


def read_all(path: Path) -> dict[str, np.ndarray]:
    files = ModelFiles("tiny", path)
    spec = model_spec(files, "float32")
    checkpoint = open_checkpoint(files, "auto", spec, 0)
    return {param.name: to_float32(checkpoint.read(param.name)) for param in spec.params()}


@pytest.mark.parametrize("kind", WRITABLE)
def test_values_equal_dequantize(tmp_path: Path, kind: str) -> None:
    model = tiny_model(tmp_path / "hf", "llama")
    expected = tiny_gguf(tmp_path / "m.gguf", model, kind)
    found = read_all(tmp_path / "m.gguf")
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("family", "overrides"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("llama3", {}),
        ("qwen2", {}),
        ("qwen3", {}),
    ],
)
def test_equals_the_model(tmp_path: Path, family: str, overrides: dict[str, Any]) -> None:
    model = tiny_model(tmp_path / "hf", family, **overrides)
    tiny_gguf(tmp_path / "m.gguf", model)
    for name, values in read_all(tmp_path / "m.gguf").items():
        np.testing.assert_array_equal(values, model.state_dict()[name].numpy(), err_msg=name)


def test_unpermute_undoes_the_converter() -> None:
    rows = np.arange(6 * 8 * 3).reshape(6 * 8, 3)
    assert not np.array_equal(permute(rows, 6), rows)
    np.testing.assert_array_equal(unpermute(permute(rows, 6), 6), rows)


def test_plain_tensors_are_views_and_read_only(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "m.gguf", tiny_model(tmp_path / "hf", "qwen2"), "F16")
    files = ModelFiles("tiny", tmp_path / "m.gguf")
    checkpoint = open_checkpoint(files, "auto", model_spec(files, "float32"), 0)
    raw = checkpoint.read("model.layers.0.mlp.up_proj.weight")
    assert (raw.dtype, raw.array.flags.owndata, raw.array.flags.writeable) == (
        "float16",
        False,
        False,
    )


def test_type_that_cannot_be_dequantised_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tiny_gguf(path, tiny_model(tmp_path / "hf", "llama"), "F32")
    patched = _retype(path.read_bytes(), "blk.1.ffn_up.weight", gguf.GGMLQuantizationType.I32)
    path.write_bytes(patched)
    with pytest.raises(ModelError, match=r"blk\.1\.ffn_up\.weight has type I32"):
        read_all(path)


def _retype(data: bytes, name: str, kind: gguf.GGMLQuantizationType) -> bytes:
    """The directory says: name, number of dimensions (u32), dimensions (u64 each), type (u32)."""
    at = data.index(name.encode()) + len(name) + 4 + 2 * 8
    return data[:at] + int(kind).to_bytes(4, "little") + data[at + 4 :]


@pytest.mark.parametrize("kind", sorted(gguf.quants._type_traits), ids=lambda kind: kind.name)
def test_every_type_the_gguf_package_reads(tmp_path: Path, kind: gguf.GGMLQuantizationType) -> None:
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    # Low bytes only, so that scales are finite in any type; an odd number of blocks.
    random = np.random.default_rng(int(kind))
    packed = random.integers(0, 60, (9, 5 * block_bytes), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen2")
    writer.add_block_count(4)
    writer.add_tensor("blk.3.ffn_up.weight", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    checkpoint = GgufCheckpoint(ModelFiles("m", tmp_path / "m.gguf"), qwen2(CONFIG, "bfloat16"))
    name = "model.layers.3.mlp.up_proj.weight"
    assert checkpoint.shapes() == {name: (9, 5 * block)}
    expected = gguf.quants.dequantize(packed, kind)
    np.testing.assert_array_equal(to_float32(checkpoint.read(name)), expected)
