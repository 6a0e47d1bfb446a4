"""Models that also see or hear answer to text alone as the decoder in them, read here, does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dense import DenseModel
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText, AutoModelForMultimodalLM

from octavo.fallback.selftest import randomise
from octavo.fallback.shrink import VOCAB, shrunk
from octavo.files.model_files import ModelFiles
from octavo.models.catalogue import TEXT_PARTS

# The code of the first comes with it; the second's class cannot be called without images.
ELSEWHERE = {"internvl_chat", "llama4"}
LARGE = ("qwen3_5", "qwen3_5_moe")
CASES = [
    pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())
    for name in sorted(TEXT_PARTS.keys() - ELSEWHERE)
]


def tiny(folder: Path, model_type: str) -> Any:
    config = shrunk(CONFIG_MAPPING[model_type]())
    text = config.get_text_config()
    config.tie_word_embeddings = text.tie_word_embeddings
    text.pad_token_id = text.eos_token_id = text.bos_token_id = 1
    kinds = (AutoModelForImageTextToText, AutoModelForMultimodalLM)
    kind = next(k for k in kinds if type(config) in k._model_mapping)
    model = kind.from_config(config, dtype=torch.float32).eval()
    randomise(model)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("model_type", CASES)
def test_text_alone(model_type: str, tmp_path: Path) -> None:
    model = tiny(tmp_path, model_type)
    ids = [8 + 7 * n % (VOCAB - 10) for n in range(40)]
    with torch.inference_mode():
        wanted = model(input_ids=torch.tensor([ids])).logits[0]
    found = DenseModel(ModelFiles("tiny", tmp_path)).logits(ids)
    assert float((found - wanted).abs().max()) < 1e-4 * float(wanted.abs().max())
