"""What Hugging Face Transformers makes of a model by itself: nothing of Octavo computes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from octavo.base.errors import ModelError
from octavo.fallback.quiet import quiet
from octavo.files.model_files import ModelFiles

T = TypeVar("T")


class TrueText:
    """Transformers' tokenizer and chat template of a model.

    Raises:
        ModelError: it cannot read them.
    """

    def __init__(self, files: ModelFiles, trust_remote_code: bool) -> None:
        load = AutoTokenizer.from_pretrained
        self.guesses = files.is_gguf  # the rules that tokenizer.ggml.pre names are not looked at
        self._tokenizer = _read(load, files, trust_remote_code=trust_remote_code)

    def encode(self, text: str) -> list[int]:
        """Without special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def chat(self, messages: Sequence[dict[str, str]]) -> tuple[str, list[int]]:
        """A conversation with the assistant's turn opened, as text and as token ids.

        Raises:
            ModelError: there is no template, or it refuses the messages.
        """
        made = partial(self._tokenizer.apply_chat_template, messages, add_generation_prompt=True)
        text = _told(lambda: made(tokenize=False))
        return str(text), list(_told(lambda: made(tokenize=True, return_dict=False)))


def logits(
    files: ModelFiles, prompts: Sequence[Sequence[int]], trust_remote_code: bool
) -> list[np.ndarray]:
    """float32 [T, vocab] for each prompt of T token ids: after each of them.

    Raises:
        ModelError: Transformers cannot read the model or compute it.
    """
    options = {"dtype": torch.float32, "trust_remote_code": trust_remote_code}
    model = _read(AutoModelForCausalLM.from_pretrained, files, **options).eval()
    return [_told(partial(_logits, model, prompt)) for prompt in prompts]


def _logits(model: Any, prompt: Sequence[int]) -> np.ndarray:
    with torch.inference_mode():
        found: np.ndarray = model(torch.tensor([list(prompt)])).logits[0].float().numpy()
    return found


def _read(load: Callable[..., Any], files: ModelFiles, **options: Any) -> Any:
    """From disk only."""
    if files.is_gguf:
        options["gguf_file"] = files.path.name
    folder = files.path.parent if files.is_gguf else files.path
    return _told(lambda: load(folder, local_files_only=True, **options))


def _told(ask: Callable[[], T]) -> T:
    """Whatever Transformers raises, in a line."""
    try:
        with quiet(), redirect_stderr(StringIO()):  # where its bars go
            return ask()
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ModelError(f"Transformers: {type(error).__name__}: {first}") from error
