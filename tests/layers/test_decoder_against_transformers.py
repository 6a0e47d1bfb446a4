"""Logits of every family against Hugging Face Transformers, on tiny random models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES, tiny_model

from octavo.files.model_files import ModelFiles
from octavo.layers.context import StepContext
from octavo.layers.decoder import Decoder
from octavo.layers.params import Params, to_torch
from octavo.models.families import model_spec
from octavo.weights.checkpoint import RawTensor
from octavo.weights.open import open_checkpoint


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers(family, tmp_path):
    oracle = tiny_model(tmp_path, family)
    files = ModelFiles("tiny", tmp_path)
    spec = model_spec(files, "float32")
    params = Params(torch.float32, torch.device("cpu"))
    decoder = Decoder(spec, params)
    params.load(open_checkpoint(files, "auto", spec, 0).read)
    ids = torch.arange(40) * 7 % spec.vocab_size

    def attend(layer, q, k, v):
        s = spec.layers[layer].attention
        at, key = torch.arange(len(q))[:, None], torch.arange(len(q))[None]
        seen = (key <= at) & (key > at - (s.window or len(q)))
        k, v = (x.repeat_interleave(s.num_heads // s.num_kv_heads, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * s.scale
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)

    with torch.inference_mode():
        ours = decoder(ids, StepContext(torch.arange(40), attend), torch.arange(40))
        theirs = oracle(ids[None]).logits[0]
    assert (ours - theirs).abs().max() < 1e-4


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
