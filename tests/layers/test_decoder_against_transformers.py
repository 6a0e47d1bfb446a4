"""Logits of every family against Hugging Face Transformers, on tiny random models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dense import DenseModel
from tiny_models import FAMILIES, HYBRIDS, tiny_model

from octavo.files.model_files import ModelFiles
from octavo.layers.decoder import Decoder
from octavo.layers.params import Params, to_torch
from octavo.models.families import model_spec
from octavo.weights.checkpoint import RawTensor


@pytest.mark.parametrize("family", FAMILIES + HYBRIDS)
def test_logits_equal_transformers(family, tmp_path):
    oracle = tiny_model(tmp_path, family)
    ids = [n * 7 % oracle.config.vocab_size for n in range(60)]
    with torch.inference_mode():
        theirs = oracle(torch.tensor([ids])).logits[0]
    files = ModelFiles("tiny", tmp_path)
    assert (DenseModel(files).logits(ids) - theirs).abs().max() < 1e-4 * theirs.abs().max()
    model = DenseModel(files)
    parts = [model.logits(ids[a:b]) for a, b in ((0, 1), (1, 8), (8, 39), (39, 60))]
    assert (torch.cat(parts) - theirs).abs().max() < 1e-4 * theirs.abs().max()


def test_biases_of_deepseek_v2(tmp_path):
    oracle = tiny_model(tmp_path, "deepseek_v2", mlp_bias=True, attention_bias=True)
    ids = [n * 7 % 512 for n in range(60)]
    with torch.inference_mode():
        theirs = oracle(torch.tensor([ids])).logits[0]
    ours = DenseModel(ModelFiles("tiny", tmp_path)).logits(ids)
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("longest", [None, 32])
def test_longrope_beyond_the_original_context_and_within(longest, tmp_path):
    """Transformers chooses by each sequence's length, Octavo by the longest that may come."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0 + n / 8 for n in range(8)],
        "long_factor": [2.0 + n for n in range(8)],
        "original_max_position_embeddings": 32,
    }
    oracle = tiny_model(tmp_path, "phi3", rope_parameters=rope, original_max_position_embeddings=32)
    ids = [n * 7 % 512 for n in range(longest or 60)]
    with torch.inference_mode():
        theirs = oracle(torch.tensor([ids])).logits[0]
    ours = DenseModel(ModelFiles("tiny", tmp_path), longest).logits(ids)
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


def test_a_tied_head_is_the_embedding(tmp_path):
    tiny_model(tmp_path, "llama", tie_word_embeddings=True)
    spec = model_spec(ModelFiles("tiny", tmp_path), "float32")
    params = Params(torch.float32, torch.device("cpu"))
    decoder = Decoder(spec, params)
    assert decoder.head.weight is decoder.embedding
    assert params.num_bytes == sum(4 * int(np.prod(p.shape)) for p in spec.params())


def test_bfloat16_bits_arrive_unchanged():
    want = torch.randn(5, 3).bfloat16()
    bits = want.view(torch.int16).numpy().view(np.uint16)
    assert torch.equal(to_torch(RawTensor("bfloat16", bits)), want)
