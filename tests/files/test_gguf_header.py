"""GGUF headers against files written by the gguf package, and against files that are broken."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.base.errors import ModelError
from octavo.files.gguf_header import GgufHeader
from octavo.files.gguf_types import DEFAULT_ALIGNMENT, TensorType, ValueType
from octavo.files.model_files import ModelFiles

TOKENS = ["<s>", "", "naïve", "日本", "Ġthe"]


def write(path: Path, alignment: int = 32) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_rope_freq_base(1e5)
    writer.add_add_bos_token(False)
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.5, -1.5])
    writer.add_uint64("big", 2**63)
    writer.add_array("flags", [True, False, True])
    writer.add_tensor("a.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
    q8 = gguf.quants.quantize(np.ones((3, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("b.weight", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("c.weight", np.arange(4, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_metadata_are_plain_values(file: Path) -> None:
    metadata = GgufHeader.read(file).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.block_count"] == 2
    assert metadata["llama.rope.freq_base"] == 1e5
    assert metadata["tokenizer.ggml.add_bos_token"] is False
    assert metadata["tokenizer.ggml.tokens"] == TOKENS
    assert metadata["tokenizer.ggml.scores"].tolist() == [0.5, -1.5]
    assert metadata["flags"].tolist() == [True, False, True]
    assert metadata["big"] == 2**63


@pytest.mark.parametrize("alignment", [32, 64, 256])
def test_tensors_lie_where_the_library_says(tmp_path: Path, alignment: int) -> None:
    path = write(tmp_path / "aligned.gguf", alignment)
    mine = GgufHeader.read(path).tensors
    theirs = gguf.GGUFReader(path).tensors
    assert list(mine) == [tensor.name for tensor in theirs] == ["a.weight", "b.weight", "c.weight"]
    for tensor in theirs:
        got = mine[tensor.name]
        assert got.shape == tuple(reversed(tensor.shape.tolist()))
        assert got.type.name == tensor.tensor_type.name
        assert (got.offset, got.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert got.offset % alignment == 0


def test_offset_is_absolute(file: Path) -> None:
    tensor = GgufHeader.read(file).tensors["a.weight"]
    values = np.fromfile(file, np.float32, count=6, offset=tensor.offset)
    assert values.reshape(tensor.shape).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_model_files_read_the_header(file: Path) -> None:
    assert ModelFiles("tiny", file).gguf.metadata["general.name"] == "tiny"


@given(st.data())
def test_a_file_cut_anywhere_is_one_clear_error(file: Path, data: st.DataObject) -> None:
    whole = file.read_bytes()
    length = data.draw(st.integers(0, len(whole) - 64))  # the last tensor is padded
    cut = file.with_name("cut.gguf")
    cut.write_bytes(whole[:length])
    with pytest.raises(ModelError, match=r"cut\.gguf"):
        GgufHeader.read(cut)


@given(st.data())
def test_a_damaged_file_is_read_or_refused_with_its_name(file: Path, data: st.DataObject) -> None:
    broken = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    path = file.with_name("broken.gguf")
    path.write_bytes(broken)
    try:
        tensors = GgufHeader.read(path).tensors.values()
    except ModelError as error:
        assert "broken.gguf" in str(error) and "\n" not in str(error)
    else:
        assert all(tensor.offset + tensor.num_bytes <= len(broken) for tensor in tensors)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(kind) + u64(offset)


def head(num_tensors: int, num_entries: int, version: int = 3) -> bytes:
    return b"GGUF" + u32(version) + u64(num_tensors) + u64(num_entries)


HUGE = 2**63
ENTRY = text("k") + u32(4) + u32(7)
BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not a GGUF file"),
    "magic": (b"GGML" + bytes(64), "not a GGUF file"),
    "only magic": (b"GGUF", "header: cut short"),
    "version 1": (head(0, 0, 1), "GGUF version 1 is not supported"),
    "big-endian": (head(0, 0, 3 << 24), "big-endian"),
    "huge number of entries": (head(0, HUGE), "metadata entry 0 of .*: cut short"),
    "huge number of tensors": (head(HUGE, 0), "tensor 0 of .*: cut short"),
    "huge string": (head(0, 1) + u64(HUGE), "cut short"),
    "huge array": (head(0, 1) + text("k") + u32(9) + u32(4) + u64(HUGE), "'k': cut short"),
    "huge list": (head(0, 1) + text("k") + u32(9) + u32(8) + u64(HUGE), "'k': cut short"),
    "nested": (head(0, 1) + text("k") + u32(9) + u32(9) + u64(1), "arrays of arrays"),
    "value type": (head(0, 1) + text("k") + u32(99), "'k': unknown value type 99"),
    "key twice": (head(0, 2) + ENTRY + ENTRY, "'k': given twice"),
    "not UTF-8": (head(0, 1) + text(b"\xff"), "not UTF-8"),
    "alignment": (
        head(0, 1) + text("general.alignment") + u32(4) + u32(3),
        "must be a power of two, got 3",
    ),
    "dimensions": (head(1, 0) + tensor("t", (1,) * 5), "'t': has 5 dimensions; at most 4"),
    "tensor type": (head(1, 0) + tensor("t", (1,), kind=999), "unknown tensor type 999"),
    "half a block": (head(1, 0) + tensor("t", (33,), kind=8), "no whole Q8_0 blocks of 32"),
    "huge tensor": (head(1, 0) + tensor("t", (HUGE, HUGE)), "'t': cut short"),
    "far tensor": (head(1, 0) + tensor("t", (1,), offset=HUGE), "'t': cut short"),
    "crooked tensor": (head(1, 0) + tensor("t", (1,), offset=4), "no multiple of 32"),
    "tensor twice": (head(2, 0) + tensor("t", (0,)) * 2, "'t': given twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(tmp_path: Path, case: str) -> None:
    content, message = BAD[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        GgufHeader.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None], ids=["a folder", "missing"])
def test_what_cannot_be_opened_is_named(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "away.gguf"
    make(path)
    with pytest.raises(ModelError, match=r"away\.gguf cannot be read"):
        GgufHeader.read(path)


def test_types_are_those_of_the_gguf_package():
    ours = {kind.code: (kind.name, kind.block_length, kind.block_bytes) for kind in TensorType}
    sizes = gguf.constants.GGML_QUANT_SIZES
    assert ours == {int(kind): (kind.name, *size) for kind, size in sizes.items()}
    assert {kind.name: int(kind) for kind in ValueType} == {
        kind.name: int(kind) for kind in gguf.GGUFValueType
    }
    assert gguf.GGUF_DEFAULT_ALIGNMENT == DEFAULT_ALIGNMENT
