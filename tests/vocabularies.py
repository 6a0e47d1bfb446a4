"""Small vocabularies trained on the spot, and GGUF files that hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gguf import GGUFWriter
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer

CORPUS = [
    "The capital of France is Paris, and the capital of Germany is Berlin. The cat sat there.",
    "def total(values):\n    return sum(value for value in values if value > 10)\n",
    "  indented\n\n\n\ttabs and   runs of    spaces; 1234567890 12 345 2024-11-29",
    "Ünïcödé wörds, straße, façade; привет мир, как дела; 你好世界。今天天气很好; こんにちは世界",
    "emoji 😀😀 👩‍👩‍👧 and 🇫🇷 flags; don't, I'll, we've, THEY'RE",
]

TRICKY = [
    "",
    " ",
    "Hello world",
    "  two spaces before, two after  ",
    "The capital of France",
    "1234567890 12  345 3.14159, 2024-11-29",
    "a\n\n\nb\r\n\tc   \n   d",
    "def f(x):\n    if x >= 10:\n        return x ** 2\n",
    "I'm you're WE'LL they'd",
    "😀👩‍👩‍👧🇫🇷 zwj‍here",
    "你好。世界こんにちは 안녕하세요",
    "naïve café Ångström ß ﬁ ½ ²",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<tool>x</tool> < tool >",
    "a" * 50 + " " * 17 + "\u00a0\u3000\u200b end",
]

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])


def byte_level(pre: pre_tokenizers.PreTokenizer = GPT2, vocab_size: int = 600) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return tokenizer


def sentencepiece(vocab_size: int = 400) -> Tokenizer:
    """As Llama 2 has it: merges within words, bytes for characters that were never seen."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = BpeTrainer(vocab_size=vocab_size, limit_alphabet=60, show_progress=False)
    trained.train_from_iterator(CORPUS[:3] * 3, trainer)
    learned = json.loads(trained.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    vocab = {token: id for id, token in enumerate(tokens)}
    merges = [tuple(merge) for merge in learned["merges"]]
    model = models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def write_gguf(path: Path, tokenizer: Tokenizer, pre: str | None, **metadata: Any) -> Path:
    """Metadata only. `pre` None: a sentencepiece vocabulary, with scores and no merges."""
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(id) for id in range(tokenizer.get_vocab_size())]
    writer.add_token_list(tokens)
    writer.add_token_types([_token_type(tokenizer, token) for token in tokens])
    merges = ["".join(merge) for merge in model["merges"]]
    if pre is None:
        ranks = {token: -float(rank) for rank, token in reversed(list(enumerate(merges)))}
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([ranks.get(token, -1e6) for token in tokens])
        roles = {"unknown": "<unk>", "bos": "<s>", "eos": "</s>"}
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
        roles = {"bos": SPECIAL[1], "eos": SPECIAL[2]}
    for role, token in roles.items():
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", tokens.index(token))
    for key, value in metadata.items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_string
        add(f"tokenizer.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _token_type(tokenizer: Tokenizer, token: str) -> int:
    added = {entry.content: entry for entry in tokenizer.get_added_tokens_decoder().values()}
    if token in added:
        return 3 if added[token].special else 4
    return 6 if token.startswith("<0x") else 1
