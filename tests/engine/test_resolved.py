"""Which way a model goes, and that the next one is taken where the first cannot."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tiny_gguf import tiny_gguf
from tiny_models import tiny_model

from octavo.base.errors import ConfigError, ModelError
from octavo.base.settings import EngineSettings
from octavo.engine.resolved import Resolved, resolve
from octavo.files.model_files import ModelFiles


def resolved(path: Path, **options: Any) -> Resolved:
    settings = EngineSettings.flat(**{"device": "cpu", "threads": 1} | options)
    return resolve(settings, ModelFiles("tiny", path))


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A llama whose file has a tensor more, which Transformers' class does not read."""
    state = {n: x.contiguous() for n, x in tiny_model(tmp_path, "llama").state_dict().items()}
    for file in tmp_path.glob("model*"):
        file.unlink()
    save_file({**state, "model.odd": torch.zeros(2)}, tmp_path / "model.safetensors")
    return tmp_path


def test_a_checkpoint_that_is_not_the_spec_goes_to_transformers(
    odd: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "octavo.engine"):
        assert resolved(odd).backend.name == "Transformers cpu"
    [said] = [r.getMessage() for r in caplog.records if r.name == "octavo.engine"]
    assert said == "the checkpoint has unknown 1 tensor: model.odd; computed by Transformers cpu"


@pytest.mark.parametrize("way", ["native", "torch"])
def test_but_not_where_a_way_is_named(odd: Path, way: str) -> None:
    with pytest.raises(ModelError, match=r"unknown 1 tensor: model\.odd$"):
        resolved(odd, model_impl=way)


def test_a_reason_is_said_once(odd: Path) -> None:
    config = odd / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_hidden_layers": 4}))
    with pytest.raises(ModelError) as caught:
        resolved(odd)
    assert str(caught.value).count("lacks") == 1


def test_gguf_is_read_by_octavo_only(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, "llama")
    tiny_gguf(tmp_path / "m.gguf", model)
    assert resolved(tmp_path / "m.gguf").backend.name.startswith("native")
    with pytest.raises(ModelError, match="Transformers reads folders"):
        resolved(tmp_path / "m.gguf", model_impl="transformers")


def test_sizes_that_the_kernels_do_not_read_go_to_torch(tmp_path: Path) -> None:
    tiny_model(tmp_path, "deepseek_v3", qk_nope_head_dim=16)
    assert resolved(tmp_path).backend.name == "torch cpu"
    with pytest.raises(ModelError, match="qk_nope_head_dim to be a multiple of 32, got 16"):
        resolved(tmp_path, model_impl="native")


def test_a_setting_that_is_impossible_is_no_reason_to_go_another_way(tmp_path: Path) -> None:
    tiny_model(tmp_path, "llama")
    with pytest.raises(ConfigError, match="block_size must be a multiple of 16 on the CPU, got 8"):
        resolved(tmp_path, block_size=8)
    assert resolved(tmp_path, block_size=8, model_impl="torch").backend.name == "torch cpu"


def test_what_is_read_of_a_model_that_also_sees_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny_model(tmp_path, "llama")
    config = tmp_path / "config.json"
    text = json.loads(config.read_text())
    config.write_text(json.dumps({"model_type": "llava", "text_config": text, "dtype": "float32"}))
    with caplog.at_level(logging.INFO, "octavo.engine"):
        resolved(tmp_path, load_format="dummy")
    assert "only the text part of llava is served: llama" in caplog.text
