"""Parameters that are parts of a checkpoint's tensors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from tiny_gguf import kv_b_in_one, tiny_gguf
from tiny_models import tiny_model

from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.weights.checkpoint import RawTensor, to_float32
from octavo.weights.gguf_file import GgufCheckpoint
from octavo.weights.parameters import Parameters


def test_a_tensor_is_read_once_for_all_heads(tmp_path: Path) -> None:
    """Of an older file, which has keys and values of all heads in one."""
    model = tiny_model(tmp_path / "hf", "deepseek_v3", q_lora_rank=32, moe_intermediate_size=64)
    config = model.config
    written = tiny_gguf(tmp_path / "m.gguf", model, "Q8_0", **kv_b_in_one(config))
    files = ModelFiles("tiny", tmp_path / "m.gguf")
    spec, reads = model_spec(files, "float32"), Counter[str]()

    class Counted(GgufCheckpoint):
        def read(self, name: str) -> RawTensor:
            reads[name] += 1
            return super().read(name)

    parameters = Parameters(spec, Counted(files, spec))
    found = {p.name: to_float32(parameters.read(p.name)) for p in spec.params()}
    assert {n for name, n in reads.items() if "kv_b_proj" in name} == {1}
    plain = config.qk_nope_head_dim
    for layer in range(config.num_hidden_layers):
        path = f"model.layers.{layer}.self_attn"
        heads = written[f"{path}.kv_b_proj.weight"].reshape(config.num_attention_heads, -1, 32)
        for h, rows in enumerate(heads):
            np.testing.assert_array_equal(found[f"{path}.k_up.{h}"], rows[:plain].T)
            np.testing.assert_array_equal(found[f"{path}.v_up.{h}"], rows[plain:])
