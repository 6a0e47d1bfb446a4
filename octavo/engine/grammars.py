"""Where an engine's structures get their vocabulary from."""

from __future__ import annotations

from octavo.base.settings import EngineSettings
from octavo.engine.info import EngineInfo
from octavo.files.model_files import ModelFiles
from octavo.grammar.grammars import Grammars
from octavo.grammar.vocabulary import Vocabulary
from octavo.text.tokenizer import load_tokenizer


def find_grammars(settings: EngineSettings, files: ModelFiles, info: EngineInfo) -> Grammars | None:
    """None where there is no tokenizer, or no token ends an answer."""
    if settings.model.skip_tokenizer_init or not info.eos_token_ids:
        return None
    backend = settings.model.structured_outputs_backend
    return Grammars(lambda: find_vocabulary(settings, files, info), backend)


def find_vocabulary(settings: EngineSettings, files: ModelFiles, info: EngineInfo) -> Vocabulary:
    """The bytes of every token of a model; none of those that its tokenizer lacks.

    Raises:
        ModelError: its tokenizer cannot be found or understood.
    """
    tokenizer = load_tokenizer(files, settings.model.tokenizer)
    tokens = [tokenizer.token_bytes(i) for i in range(max(tokenizer.vocab_size, info.vocab_size))]
    return Vocabulary(tokens, tokenizer.special_ids | {*info.eos_token_ids}, info.eos_token_ids)
