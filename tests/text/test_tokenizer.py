"""Tokenizers from a folder, single tokens, threads."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from vocabularies import CORPUS, TRICKY, byte_level, sentencepiece

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.text.tokenizer import Tokenizer, load_tokenizer


def folder(path: Path, backend: Backend, **config: object) -> ModelFiles:
    backend.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return ModelFiles("tiny", path)


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_round_trip(make):
    backend = make()
    tokenizer = Tokenizer(backend)
    for text in [*TRICKY, *CORPUS]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert tokenizer.decode(ids) == backend.decode(ids, skip_special_tokens=True)


def test_truncation_and_padding_of_the_file_are_off(tmp_path):
    backend = byte_level()
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    ids = load_tokenizer(folder(tmp_path, backend)).encode(CORPUS[0])
    assert len(ids) > 4 and ids[-1] != 0


def test_folder_equals_hugging_face(tmp_path):
    from transformers import AutoTokenizer

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "special": True},
        "chat_template": "{{ messages }}",
    }
    files = folder(tmp_path, byte_level(), **config)
    ours, theirs = load_tokenizer(files), AutoTokenizer.from_pretrained(tmp_path)
    for text in TRICKY:
        assert ours.encode(text) == theirs.encode(text)
    assert (ours.bos_token, ours.eos_token, ours.eos_token_id) == ("<|im_start|>", "<|im_end|>", 2)
    assert ours.chat_template == "{{ messages }}"


def test_config_says_bos_where_the_post_processor_does_not(tmp_path):
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}
    tokenizer = load_tokenizer(folder(tmp_path, sentencepiece(), **config))
    ids = tokenizer.encode("The cat")
    assert (ids[0], ids[-1]) == (1, 2)


def test_post_processor_goes_before_config(tmp_path):
    backend = sentencepiece()
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}
    ids = load_tokenizer(folder(tmp_path, backend, **config)).encode("The cat")
    assert ids[0] == 1 and ids[1] != 1 and ids[-1] != 2


def test_chat_never_gets_a_second_bos(tmp_path):
    """As `apply_chat_template(tokenize=True)`, whether the template writes BOS or not."""
    from transformers import AutoTokenizer

    backend = sentencepiece()
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    tokenizer = load_tokenizer(folder(tmp_path, backend, **config))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for template, count in (("{{ bos_token }}The cat", 1), ("The cat", 0)):
        expected = theirs.apply_chat_template(
            [{"role": "user", "content": "x"}], chat_template=template, return_dict=False
        )
        ids = tokenizer.encode_chat(template.replace("{{ bos_token }}", "<s>"))
        assert ids == expected
        assert ids.count(1) == count


def test_chat_template_places(tmp_path):
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    files = folder(tmp_path, byte_level(), chat_template=named)
    assert load_tokenizer(files).chat_template == "D"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert load_tokenizer(files).chat_template == "J"


def test_override(tmp_path):
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir(), other.mkdir()
    files = ModelFiles("tiny", here)
    folder(other, byte_level(), eos_token="<|im_end|>")
    for place in (other, other / "tokenizer.json"):
        assert load_tokenizer(files, str(place)).eos_token == "<|im_end|>"


def test_missing_and_broken_files(tmp_path):
    files = ModelFiles("tiny", tmp_path)
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        load_tokenizer(files)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ModelError, match=r"sentencepiece tokenizer\.model; a tokenizer\.json is"):
        load_tokenizer(files)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json is not a tokenizer"):
        load_tokenizer(files)


def test_unsupported_decoder_is_named():
    backend = byte_level()
    backend.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match="WordPiece"):
        Tokenizer(backend)


def test_token_strings_and_bytes():
    tokenizer = Tokenizer(byte_level())
    text = " héllo 😀<|im_end|>"
    ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.token(2) == "<|im_end|>"
    assert tokenizer.token(tokenizer.token_id("ð")) == r"\xf0"  # a byte that is no character
    pieces = Tokenizer(sentencepiece())
    assert pieces.token(pieces.token_id("\u2581the")) == " the"
    assert pieces.token_bytes(pieces.token_id("<0xE2>")) == b"\xe2"
    assert pieces.token(pieces.token_id("<0x0A>")) == "\n"


def test_ids_that_the_vocabulary_lacks():
    tokenizer = Tokenizer(byte_level())
    for id in (-1, tokenizer.vocab_size, 2**31, 2**32, 2**70):
        assert (tokenizer.token(id), tokenizer.token_bytes(id)) == ("", b"")
        assert tokenizer.decode([id, *tokenizer.encode("The")]) == "The"


def test_whole_words_are_joined_by_spaces():
    backend = Backend(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    assert Tokenizer(backend).decode([0, 1, 1]) == backend.decode([0, 1, 1]) == "a b b"


def test_threads_share_a_tokenizer():
    tokenizer = Tokenizer(byte_level())
    expected = [tokenizer.encode(text) for text in TRICKY]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            assert list(pool.map(tokenizer.encode, TRICKY)) == expected
