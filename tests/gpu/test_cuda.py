"""The same models on a CUDA device."""

from __future__ import annotations

import random

import pytest
from tiny_models import DENSE, tiny_model

from octavo import LLM, SamplingParams

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
@pytest.mark.parametrize("family", DENSE)
def test_tokens_equal_those_of_the_cpu(family, kv_dtype, tmp_path):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    tiny_model(tmp_path, family)
    rng = random.Random(family)
    prompts = [[rng.randrange(512) for _ in range(n)] for n in (1, 16, 61)]
    params = [SamplingParams(temperature=t, seed=7, max_tokens=32) for t in (0.0, 0.8, 1.2)]
    tokens = {}
    for device in ("cpu", "cuda"):
        options = {"dtype": "float32", "kv_dtype": kv_dtype, "kv_memory": "16MiB"}
        llm = LLM(str(tmp_path), device=device, skip_tokenizer_init=True, **options)
        outputs = llm.generate(prompts, params, use_tqdm=False)
        tokens[device] = [o.outputs[0].token_ids for o in outputs]
    assert tokens["cpu"] == tokens["cuda"]
