"""Int8 checkpoints of compressed-tensors: what is read, what is kept in memory, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_int8 import tiny_int8
from tiny_models import tiny_model

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.models.spec import MlpSpec
from octavo.weights.checkpoint import to_float32
from octavo.weights.formats import summary, weight_formats
from octavo.weights.open import open_checkpoint
from octavo.weights.safetensors_files import SINGLE

GATE = "model.layers.1.mlp.gate_proj.weight"


def opened(folder: Path) -> tuple[Any, Any]:
    files = ModelFiles("tiny", folder)
    spec = model_spec(files, "float32")
    return spec, open_checkpoint(files, "auto", spec, 0)


def int8_folder(tmp_path: Path, family: str = "llama", **how: Any) -> tuple[Path, Any]:
    model = tiny_model(tmp_path / "hf", family)
    tiny_int8(tmp_path / "int8", model, **how)
    return tmp_path / "int8", model


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_values_are_codes_times_scales(tmp_path: Path, family: str, scale_dtype: Any) -> None:
    folder, model = int8_folder(tmp_path, family, scale_dtype=scale_dtype)
    spec, checkpoint = opened(folder)
    assert checkpoint.shapes() == {param.name: param.shape for param in spec.params()}
    for name in checkpoint.shapes():
        expected = model.state_dict()[name].numpy()
        np.testing.assert_array_equal(to_float32(checkpoint.read(name)), expected, err_msg=name)
    codes, scales = checkpoint.codes(GATE)
    assert (codes.dtype, scales.dtype) == (np.int8, np.float32)
    np.testing.assert_array_equal(codes * scales[:, None], model.state_dict()[GATE].numpy())


@pytest.mark.parametrize(
    ("activations", "quantization", "kept"),
    [
        (True, "auto", "int8, bf16"),
        (False, "auto", "bf16"),
        (True, "none", "bf16"),
        (True, "q8_0", "q8_0, bf16"),
    ],
)
def test_int8_is_kept_where_the_model_was_made_for_it(
    tmp_path: Path, activations: bool, quantization: str, kept: str
) -> None:
    spec, checkpoint = opened(int8_folder(tmp_path, activations=activations)[0])
    formats = weight_formats(spec, checkpoint, "bfloat16", quantization)
    assert summary(spec, formats) == kept
    assert "model.norm.weight" not in formats


def test_gate_and_up_may_be_kept_in_different_formats(tmp_path: Path) -> None:
    folder, _ = int8_folder(tmp_path, ignore=["lm_head", "model.layers.1.mlp.up_proj"])
    spec, checkpoint = opened(folder)
    formats = weight_formats(spec, checkpoint, "bfloat16", "auto")
    of_mlps = [[formats[p.weight.name] for p in (m.gate, m.up)] for m in mlps(spec)]
    assert of_mlps == [["int8", "int8"], ["int8", "bf16"], ["int8", "int8"]]


def mlps(spec: Any) -> list[Any]:
    return [op for layer in spec.layers for op in layer.ops if isinstance(op, MlpSpec)]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({f"{GATE}_scale": None}, f"needs a scale for each row in {GATE}_scale; has none"),
        ({f"{GATE}_scale": torch.ones(128, 2)}, r"has \[128, 2\]"),
        ({f"{GATE}_scale": torch.ones(1, 1)}, r"has \[1, 1\]"),
        ({f"{GATE}_scale": torch.ones(128, 1, dtype=torch.int16)}, "has dtype I16"),
        ({GATE: torch.zeros(128, 64)}, f"has unknown 1 tensor: {GATE}_scale"),
        ({GATE: torch.zeros(64, 128).to(torch.int8)}, "needs a scale for each row"),
        ({f"{GATE[:-7]}.weight_zero_point": torch.zeros(128, 1)}, "unknown 1 tensor: .*zero_point"),
        ({"model.norm.weight": torch.zeros(64).to(torch.int8)}, r"norm.weight, int8 \[64\], needs"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    folder, _ = int8_folder(tmp_path)
    tensors = load_file(folder / SINGLE) | change
    save_file({n: t for n, t in tensors.items() if t is not None}, folder / SINGLE)
    with pytest.raises(ModelError, match=word):
        _, checkpoint = opened(folder)
        checkpoint.codes(GATE)


def test_int8_that_no_config_speaks_of_is_refused(tmp_path: Path) -> None:
    folder, model = int8_folder(tmp_path)
    model.config.save_pretrained(folder)
    tensors = load_file(folder / SINGLE)
    save_file({n: t for n, t in tensors.items() if "_scale" not in n}, folder / SINGLE)
    _, checkpoint = opened(folder)
    with pytest.raises(ModelError, match="has dtype I8, not supported"):
        checkpoint.stored(GATE)
