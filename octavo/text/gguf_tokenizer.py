"""A tokenizer built from a GGUF file's metadata alone. Reads no files.

GGUF names the rules ("tokenizer.ggml.model", "tokenizer.ggml.pre") and brings the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
from tokenizers import AddedToken, decoders, normalizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from octavo.base.errors import ModelError
from octavo.text.gguf_pre_tokenizers import PRE_TOKENIZERS, Rules

Metadata = Mapping[str, Any]

SPACE = "\u2581"  # how a sentencepiece vocabulary writes a space

_NAMED_IDS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


class TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def build_backend(metadata: Metadata, source: str) -> Backend:
    """The tokenizer, with its special tokens but without BOS and EOS at the ends of a text.

    Raises:
        ModelError: there is none, or its kind or pre-tokenizer is unknown; the message names it
            and `source`.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise ModelError(f"{source}: tokenizer.ggml.model {kind!r} is not supported (gpt2, llama)")
    for key in ("tokens", "merges" if kind == "gpt2" else "scores"):
        if f"tokenizer.ggml.{key}" not in metadata:
            raise ModelError(f"{source} has no tokenizer.ggml.{key}")
    rules = _rules(metadata, source) if kind == "gpt2" else None
    try:
        backend = _sentencepiece(metadata) if rules is None else _byte_level(metadata, rules)
    except Exception as error:  # the tokenizers package raises no narrower type
        raise ModelError(f"{source}: the tokenizer's vocabulary is broken: {error}") from error
    _add_tokens(backend, metadata)
    return backend


def named_tokens(metadata: Metadata) -> dict[str, str]:
    """The tokens with a role, by the names that chat templates use."""
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {name: metadata.get(key) for name, key in _NAMED_IDS.items()}
    return {name: tokens[id] for name, id in ids.items() if id is not None and id < len(tokens)}


def wanted_ends(metadata: Metadata) -> tuple[bool, bool]:
    """Whether `encode` puts BOS before and EOS after a text."""
    if metadata["tokenizer.ggml.model"] == "llama":
        adds_bos = True
    else:
        adds_bos = PRE_TOKENIZERS[metadata.get("tokenizer.ggml.pre", "default")].adds_bos
    return (
        bool(metadata.get("tokenizer.ggml.add_bos_token", adds_bos)),
        bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
    )


def _rules(metadata: Metadata, source: str) -> Rules:
    name = metadata.get("tokenizer.ggml.pre", "default")
    if name not in PRE_TOKENIZERS:
        known = ", ".join(PRE_TOKENIZERS)
        raise ModelError(
            f"{source}: tokenizer.ggml.pre {name!r} is not supported (known: {known}); "
            "give the model's own tokenizer.json with --tokenizer"
        )
    return PRE_TOKENIZERS[name]


def _byte_level(metadata: Metadata, rules: Rules) -> Backend:
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    model = BPE(vocab=_vocabulary(metadata), merges=merges, ignore_merges=rules.ignore_merges)
    backend = Backend(model)
    backend.pre_tokenizer = rules.cut
    if rules.compose:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(metadata: Metadata) -> Backend:
    """BPE with byte fallback. A space is put before each run of text between special tokens, even
    where it begins with one, as the models' own sentencepiece does."""
    vocab = _vocabulary(metadata)
    unknown = named_tokens(metadata).get("unk_token")
    model = BPE(
        vocab=vocab,
        merges=_merges_from_scores(metadata, vocab),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = Backend(model)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend(SPACE))
        parts.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence(parts)
    return backend


def _vocabulary(metadata: Metadata) -> dict[str, int]:
    return {token: id for id, token in enumerate(metadata["tokenizer.ggml.tokens"])}


def _merges_from_scores(metadata: Metadata, vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, best score first.

    Sentencepiece (Kudo and Richardson, 2018) joins the neighbours whose union scores best and
    keeps no list of merges; this list makes a merging tokenizer do the same.
    """
    tokens, types = metadata["tokenizer.ggml.tokens"], _types(metadata)
    best_first = np.argsort(-np.asarray(metadata["tokenizer.ggml.scores"]), kind="stable")
    merged = (TokenType.NORMAL, TokenType.USER_DEFINED)
    return [
        (token[:cut], token[cut:])
        for token in (tokens[id] for id in best_first.tolist() if types[id] in merged)
        for cut in range(len(token) - 1, 0, -1)
        if token[:cut] in vocab and token[cut:] in vocab
    ]


def _types(metadata: Metadata) -> list[int]:
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [TokenType.NORMAL] * len(tokens)
    return [int(kind) for kind in types]  # comparing numpy's numbers is a hundred times slower


def _add_tokens(backend: Backend, metadata: Metadata) -> None:
    """Tokens that text is searched for before anything else; those with a role are special."""
    tokens, types = metadata["tokenizer.ggml.tokens"], _types(metadata)
    special = [tokens[id] for id, kind in enumerate(types) if kind == TokenType.CONTROL]
    plain = [tokens[id] for id, kind in enumerate(types) if kind == TokenType.USER_DEFINED]
    special += named_tokens(metadata).values()
    backend.add_special_tokens(_added(special, special=True))
    backend.add_tokens(_added([token for token in plain if token not in special], special=False))


def _added(tokens: list[str], special: bool) -> list[AddedToken]:
    """Found in the text as the client wrote it, before any normalizing."""
    return [AddedToken(token, normalized=False, special=special) for token in tokens]
