"""Tiny random models of any class that Transformers has, in folders, with what they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING

from octavo import LLM
from octavo.fallback.classes import decoder_class
from octavo.fallback.selftest import randomise
from octavo.fallback.shrink import VOCAB, shrunk

OUTPUT = 24


def tiny(folder: Path, model_type: str, **given: Any) -> Any:
    """Save one in `folder`; give it in eval mode."""
    made, config = decoder_class(CONFIG_MAPPING[model_type](**given))
    config = shrunk(config)
    config.eos_token_id = None
    return saved(folder, made._from_config(config, dtype=torch.float32))


def saved(folder: Path, model: Any) -> Any:
    randomise(model.eval())
    model.save_pretrained(folder)
    return model


def prompts(lengths: tuple[int, ...] = (1, 7, 16, 33, 48)) -> list[list[int]]:
    random = torch.Generator().manual_seed(5)
    return [torch.randint(8, VOCAB, (n,), generator=random).tolist() for n in lengths]


@torch.inference_mode()
def greedy(model: Any, prompt: list[int], length: int = OUTPUT) -> list[int]:
    """The oracle: no cache, no batch, the whole sequence again for every token."""
    ids = list(prompt)
    for _ in range(length):
        ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def load(folder: Path, **options: Any) -> LLM:
    settings = {
        "dtype": "float32",
        "kv_memory": "4MiB",
        "skip_tokenizer_init": True,
        "threads": 1,
        "model_impl": "transformers",
    }
    return LLM(str(folder), **(settings | options))
