"""Σ pieces == full decode, whatever the ids and however they come."""

from __future__ import annotations

import codecs
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import byte_level, sentencepiece

from octavo.text.detokenizer import Detokenizer
from octavo.text.spelling import BYTE_ALPHABET
from octavo.text.tokenizer import Tokenizer

BACKEND = byte_level()
BYTE_LEVEL = Tokenizer(BACKEND)
CHARACTER = {byte: char for char, byte in BYTE_ALPHABET.items()}
SENTENCEPIECE = Tokenizer(sentencepiece())
both = pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["bytes", "pieces"])

ALPHABET = [*"ab \n<|>_éß你好こ😀👩👧🇫🇷", "\u200d", "\u0301", "\ufffd"]
SEEDS = st.integers(0, 2**32)
TEXTS = st.text(st.sampled_from(ALPHABET) | st.characters(exclude_categories=["Cs"]), max_size=40)


def pieces(tokenizer, prompt, chunks, skip=True):
    detokenizer = Detokenizer(tokenizer, prompt, skip)
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.finish()]


def cut(ids, seed):
    """`ids` in chunks of random length, empty ones among them."""
    rng, chunks = random.Random(seed), []
    while ids:
        size = rng.randrange(5)
        chunks.append(ids[:size])
        ids = ids[size:]
    return chunks


@both
@settings(max_examples=150, deadline=None)
@given(prompt=TEXTS, text=TEXTS, seed=SEEDS)
def test_texts(tokenizer, prompt, text, seed):
    context, ids = tokenizer.encode(prompt), tokenizer.encode(text)
    parts = pieces(tokenizer, context, cut(ids, seed), skip=False)
    before = tokenizer.decode(context, skip_special_tokens=False)
    assert before == prompt
    assert before + "".join(parts) == tokenizer.decode(context + ids, skip_special_tokens=False)
    assert "\ufffd" in text or not any("\ufffd" in part for part in parts)


@both
@settings(max_examples=150, deadline=None)
@given(data=st.data(), skip=st.booleans(), start=st.integers(0, 5), seed=SEEDS)
def test_random_ids(tokenizer, data, skip, start, seed):
    """Bytes that are no UTF-8, special tokens, ids that the vocabulary lacks."""
    ids = data.draw(st.lists(st.integers(-3, tokenizer.vocab_size + 3), max_size=30))
    prompt, output = ids[:start], ids[start:]
    text = "".join(pieces(tokenizer, prompt, cut(output, seed), skip))
    whole = tokenizer.decode(ids, skip)
    assert text == whole[whole_characters(tokenizer, prompt, skip) :]


def whole_characters(tokenizer, prompt, skip):
    """Characters of the prompt's text, without one that its last bytes leave unfinished."""
    hidden = tokenizer.special_ids if skip else ()
    spelled = b"".join(tokenizer.token_bytes(id) for id in prompt if id not in hidden)
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(spelled)
    return len(text) - (1 if tokenizer.spelling.strip and text.startswith(" ") else 0)


@settings(max_examples=150, deadline=None)
@given(
    ids=st.lists(st.integers(0, BACKEND.get_vocab_size() + 3), max_size=40),
    skip=st.booleans(),
    seed=SEEDS,
)
def test_byte_level_equals_the_tokenizers_package(ids, skip, seed):
    text = "".join(pieces(BYTE_LEVEL, [], cut(ids, seed), skip))
    assert text == BACKEND.decode(ids, skip_special_tokens=skip)


def test_five_thousand_byte_strings():
    rng = random.Random(7)
    id_of = {byte: BYTE_LEVEL.token_id(char) for byte, char in CHARACTER.items()}
    for _ in range(5000):
        spelled = "".join(rng.choices(ALPHABET, k=rng.randrange(12))).encode()
        if rng.random() < 0.5:  # break it
            spelled = spelled[rng.randrange(4) :] + rng.randbytes(rng.randrange(4))
        ids = [id_of[byte] for byte in spelled]
        parts = pieces(BYTE_LEVEL, [], [[id] for id in ids])
        assert "".join(parts) == BACKEND.decode(ids) == spelled.decode(errors="replace")


def test_no_piece_ends_inside_a_character():
    ids = [BYTE_LEVEL.token_id(CHARACTER[byte]) for byte in "😀é你".encode()]
    parts = pieces(BYTE_LEVEL, [], [[id] for id in ids])
    assert parts == ["", "", "", "😀", "", "é", "", "", "你", ""]
    parts = pieces(BYTE_LEVEL, [], [[id] for id in ids[:2]])
    assert parts == ["", "", "\ufffd"]  # the rest never came


def test_sentencepiece_space_at_the_start_of_a_text_only():
    prompt, ids = SENTENCEPIECE.encode("The"), SENTENCEPIECE.encode("cat")
    assert "".join(pieces(SENTENCEPIECE, prompt, [ids])) == " cat"
    assert "".join(pieces(SENTENCEPIECE, [], [[], ids])) == "cat"
    assert "".join(pieces(SENTENCEPIECE, [1], [ids])) == "cat"  # a hidden BOS is no text
    assert "".join(pieces(SENTENCEPIECE, [1], [ids], skip=False)) == " cat"


def test_a_character_begun_by_the_prompt_is_finished_by_the_output():
    ids = [BYTE_LEVEL.token_id(CHARACTER[byte]) for byte in "x😀".encode()]
    assert "".join(pieces(BYTE_LEVEL, ids[:3], [ids[3:]])) == "😀"


def test_priming_looks_at_the_end_of_the_prompt_only():
    class Counting:
        token_bytes_calls = 0
        special_ids = BYTE_LEVEL.special_ids
        spelling = BYTE_LEVEL.spelling

        def token_bytes(self, id):
            self.token_bytes_calls += 1
            return BYTE_LEVEL.token_bytes(id)

    counting = Counting()
    Detokenizer(counting, BYTE_LEVEL.encode("The cat " * 10_000))
    assert counting.token_bytes_calls <= 4
