from __future__ import annotations

import pytest
from vocabularies import byte_level, sentencepiece

from octavo.base.sampling_params import SamplingParams
from octavo.text.bad_words import bad_word_ids, spelled
from octavo.text.tokenizer import Tokenizer


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_words_with_and_without_a_space_before_them(make):
    tokenizer = Tokenizer(make())
    found = bad_word_ids(["total", "  value", "total"], tokenizer)
    ways = ["total", " total", "value", " value"]
    assert found == [tokenizer.encode(way, add_special_tokens=False) for way in ways]
    assert [tokenizer.decode(ids).strip() for ids in found] == ["total"] * 2 + ["value"] * 2


def test_params_get_the_tokens_once():
    tokenizer = Tokenizer(byte_level())
    assert spelled(plain := SamplingParams(), tokenizer) is plain
    params = spelled(SamplingParams(bad_words=["if"]), tokenizer)
    assert params.bad_word_ids == bad_word_ids(["if"], tokenizer)
    assert spelled(params, tokenizer) is params
