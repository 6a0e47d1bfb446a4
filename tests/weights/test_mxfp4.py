"""MXFP4 of gpt-oss's safetensors: its values one by one, and the same numbers as GGUF's rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from safetensors.torch import save_file
from tiny_models import tiny_model

from octavo import LLM, SamplingParams
from octavo.base.errors import ModelError
from octavo.weights.mxfp4 import dequantised, gguf_rows
from octavo.weights.mxfp4_files import Mxfp4Checkpoint
from octavo.weights.safetensors_files import SINGLE, SafetensorsCheckpoint


def test_codes_and_scales_have_the_values_of_the_standard():
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    both = np.arange(16, dtype=np.uint8)  # byte j: code j, then code 15 - j
    blocks = (both | (15 - both) << 4).astype(np.uint8).reshape(1, 1, 16)
    of_codes = np.array([*values, *(-v for v in values)])
    expected = np.stack([of_codes, of_codes[::-1]], axis=-1).ravel()
    for exponent in (-127, -3, 0, 5, 120):
        got = dequantised(blocks, np.array([[127 + exponent]], np.uint8))
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected[None] * 2.0**exponent)


def test_rows_of_gguf_are_the_same_numbers():
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (3, 5, 4, 16), dtype=np.uint8)  # [E, out, in / 32, 16]
    scales = rng.integers(0, 250, (3, 5, 4), dtype=np.uint8)
    rows = gguf_rows(blocks, scales)
    assert rows.shape == (3, 5, 4 * 17)
    assert rows.dtype == np.uint8
    expected = dequantize(rows, GGMLQuantizationType.MXFP4)
    np.testing.assert_array_equal(dequantised(blocks, scales), expected)


def test_parts_of_a_tensor_may_be_turned_alone():
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (8, 2, 16), dtype=np.uint8)
    scales = rng.integers(0, 255, (8, 2), dtype=np.uint8)
    np.testing.assert_array_equal(
        gguf_rows(blocks, scales)[2:5], gguf_rows(blocks[2:5], scales[2:5])
    )


@pytest.mark.parametrize("impl", ["native", "torch"])
def test_a_gpt_oss_folder_in_mxfp4_gives_the_tokens_of_its_values(impl, tmp_path):
    """Experts in blocks; Transformers computes with what they stand for."""
    model, rng = tiny_model(tmp_path, "gpt_oss"), np.random.default_rng(2)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors[name].shape
        blocks = rng.integers(0, 256, (experts, outputs, inputs // 32, 16), dtype=np.uint8)
        scales = rng.integers(122, 126, blocks.shape[:3], dtype=np.uint8)
        values = torch.from_numpy(dequantised(blocks, scales)).transpose(1, 2)
        model.get_parameter(name).data.copy_(values)
        del tensors[name]
        tensors |= {f"{name}_blocks": torch.from_numpy(blocks)}
        tensors |= {f"{name}_scales": torch.from_numpy(scales)}
    for old in tmp_path.glob("*.safetensors*"):
        old.unlink()
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    prompt = [5 * n % 512 for n in range(40)]
    expected = list(prompt)
    with torch.inference_mode():
        for _ in range(12):
            expected.append(int(model(torch.tensor([expected])).logits[0, -1].argmax()))
    llm = LLM(
        str(tmp_path), model_impl=impl, dtype="float32", kv_memory="4MiB", skip_tokenizer_init=True
    )
    greedy = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    [output] = llm.generate([prompt], greedy, use_tqdm=False)
    assert output.outputs[0].token_ids == expected[40:]


def test_blocks_without_scales_are_refused(tmp_path):
    save_file({"a.w_blocks": torch.zeros(2, 4, 1, 16, dtype=torch.uint8)}, tmp_path / SINGLE)
    with pytest.raises(ModelError, match=r"a.w_blocks .* has scales None"):
        Mxfp4Checkpoint(SafetensorsCheckpoint.of_file(tmp_path / SINGLE))
