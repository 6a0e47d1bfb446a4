"""The oracle that is slow to load, once."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.files.model_files import ModelFiles


@pytest.fixture(scope="session")
def default_reference(default_model: ModelFiles) -> Any:
    """transformers' tokenizer of the default model."""
    from transformers import PreTrainedTokenizerFast

    path = default_model.path
    return PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)
