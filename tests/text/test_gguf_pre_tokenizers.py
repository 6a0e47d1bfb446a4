# ruff: noqa: RUF001 (letters that look like others are what is tested)
"""Pieces that text is cut into, against patterns as models' own files write them, by another
engine; and against pieces written by hand."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
import regex
from tokenizers import Tokenizer
from vocabularies import CORPUS, TRICKY, byte_level, write_gguf

from octavo.files.model_files import ModelFiles
from octavo.text.gguf_pre_tokenizers import PRE_TOKENIZERS
from octavo.text.tokenizer import load_tokenizer

HOSTILE = [
    *TRICKY,
    *CORPUS,
    "a\r\n\r\n  b \t \r c\n",
    "0123456789 ١٢٣٤ ½¾ Ⅻ ²³ 一二三 1,234.50",
    "HTTPServer iPhone's DON'T ǅungla ŒUVRE'S x'LL 'tis I'VE we'Re",
    "漢字かなカナ한글 mixed漢字text、。！？（全角）ＡＢＣ１２３",
    "नमस्ते दुनिया, e\u0301te\u0301 o\u0308\u0323 \u0301alone ไทยภาษา",
    "$x+=1;//comment\n#include<stdio.h>\t{[(<^~|`>)]}",
    "👩🏽‍🚀 🇫🇷\u200d\ufe0f ☺️ \u00a0\u2003\u3000 tail   ",
    "Ωmega ΆΈ Ѐжж Աբ Ა Ꭰ ᵫ ﬁ Ω K ℵ ªº ʕ 𝐀 𐐀",
]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
KIMI = r"[\p{Han}]+|" + O200K.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace(r"\n/]", r"\n]")
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-퟿]+", r"\p{N}")
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)

PATTERNS: dict[str, tuple[str, ...]] = {
    "gpt-2": (GPT2,),
    "mpt": (GPT2,),
    "olmo": (GPT2,),
    "smollm": (r"\p{N}", GPT2),
    "refact": (r"\p{N}", GPT2),
    "command-r": (r"\p{N}", GPT2),
    "llama-bpe": (LLAMA3,),
    "lfm2": (LLAMA3,),
    "pixtral": (LLAMA3,),
    "dbrx": (LLAMA3,),
    "glm4": (LLAMA3,),
    "qwen2": (QWEN2,),
    "stablelm2": (QWEN2,),
    "qwen35": (QWEN35,),
    "gpt-4o": (O200K,),
    "llama4": (O200K,),
    "tekken": (TEKKEN,),
    "kimi-k2": (KIMI,),
    "deepseek-coder": DEEPSEEK_CODER,
    "deepseek-v3": DEEPSEEK_V3,
}


def cut(name: str, text: str) -> list[str]:
    """Byte-level letters, in pieces."""
    return [piece for piece, _ in PRE_TOKENIZERS[name].cut.pre_tokenize_str(text)]


def bytes_as_letters(text: str) -> str:
    """The table of GPT-2: bytes that print are themselves, the others follow from 256 on."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    table = {byte: chr(byte) for byte in printing}
    table |= {byte: chr(256 + n) for n, byte in enumerate(others)}
    return "".join(table[byte] for byte in text.encode())


def around(pattern: str, pieces: list[str]) -> list[str]:
    """What is found stands alone, and so does what lies between."""
    found = regex.compile(f"({pattern})", regex.VERSION1)
    return [part for piece in pieces for part in found.split(piece) if part]


@pytest.mark.parametrize("name", PATTERNS)
def test_pieces_are_those_of_the_patterns(name: str) -> None:
    for text in HOSTILE:
        pieces = [text]
        for pattern in PATTERNS[name]:
            pieces = around(pattern, pieces)
        assert cut(name, text) == [bytes_as_letters(piece) for piece in pieces], text


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt-4o", "HTTPServer's 12345", "HTTPServer's| |123|45"),
        ("gpt-4o", "fooBar a//\n", "foo|Bar| a|//\n"),
        ("tekken", "fooBar's 12", "foo|Bar|'s| |1|2"),
        ("llama-bpe", "fooBar's 1234", "fooBar|'s| |123|4"),
        ("qwen35", "e\u0301a 12", "e\u0301a| |1|2"),
        ("qwen2", "e\u0301a 12", "e|\u0301a| |1|2"),
        ("kimi-k2", "Go漢字go's 1234", "Go|漢字|go's| |123|4"),
        ("deepseek-v3", "don't 12345 漢字かな.py", "don|'t| |123|45| |漢字かな|.py"),
        ("deepseek-coder", "a  b漢字12.", "a| | b|漢字|1|2|."),
        ("deepseek-llm", "a  b漢字12.\n\n x ʔé K  ", "a| | b|漢字|1|2|.|\n|\n| x| ʔ|é| K|  "),
        ("falcon", "a-b  12345's", "a|-|b| |Ġ|123|45|'|s"),
        ("smollm", "a  12", "a|  |1|2"),
    ],
)
def test_pieces_written_by_hand(name: str, text: str, pieces: str) -> None:
    assert cut(name, text) == [
        piece if piece == "Ġ" else bytes_as_letters(piece) for piece in pieces.split("|")
    ]


def test_letters_of_deepseek_have_cases() -> None:
    """And those of the alphabets that the file lists are all there."""
    for letter in "AzµÀöøƺƼʓΆώЀԯԱႠᏽᲐᴀᶚḀẞὟώΐΊῼΩℂKℭⅎↃⱻꙀꞎꭰﬀﬓＡｚ𐐀𐒰𐲀𑢠𞤀":
        assert cut("deepseek-llm", f"{letter}{letter}1") == [bytes_as_letters(letter * 2), "1"]
    for other in "ªƻʔ\u0345֏ℵⱼ":
        assert len(cut("deepseek-llm", f"x{other}x")) == 3, other


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    return byte_level()


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_text_comes_back(tmp_path: Path, vocabulary: Tokenizer, name: str) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", vocabulary, name)
    tokenizer = load_tokenizer(ModelFiles("tiny", path))
    for text in HOSTILE:
        ids = tokenizer.encode(text, add_special_tokens=False)
        expected = unicodedata.normalize("NFC", text) if PRE_TOKENIZERS[name].compose else text
        assert tokenizer.decode(ids, skip_special_tokens=False) == expected, text
