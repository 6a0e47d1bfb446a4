"""How GGUF's byte-level vocabularies want text cut before merges apply, by the names of the rules.

A name ("tokenizer.ggml.pre") stands for what the tokenizer.json says of the models that carry it.
Names whose rules are not beyond doubt, such as "falcon-h1", are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import (
    ByteLevel,
    Digits,
    PreTokenizer,
    Punctuation,
    Sequence,
    Split,
)


@dataclass(frozen=True)
class Rules:
    cut: PreTokenizer
    compose: bool = False  # Unicode NFC first
    ignore_merges: bool = False  # a piece that is a token is taken whole
    adds_bos: bool = False  # where the file does not say


def _cut(*patterns: str, words: bool = False) -> PreTokenizer:
    """Each pattern cuts the pieces that the one before it left, around all that it finds in them;
    the last is the rule of GPT-2, if `words` are cut by it."""
    splits = [Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=words)])


def _characters(runs: str) -> str:
    """A class of characters, of their hexadecimal codes."""
    return "".join("-".join(chr(int(end, 16)) for end in run.split("-")) for run in runs.split())


_SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

# ---- cl100k of OpenAI, and those made after it: how long a number's pieces are differs ----


def _cl100k(number: str, marks: str = "") -> str:
    letters = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}{marks}]+"
    return rf"{_SHORT}|{letters}|{number}| ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*|{_LINES}"


_THREES = _cut(_cl100k(r"\p{N}{1,3}"))
_LLAMA3 = Rules(_THREES, ignore_merges=True, adds_bos=True)
_CL100K = Rules(_THREES)
_QWEN2 = Rules(_cut(_cl100k(r"\p{N}")), compose=True)
_QWEN35 = Rules(_cut(_cl100k(r"\p{N}", marks=r"\p{M}")), compose=True)

# ---- o200k of OpenAI: words are cut before capitals too ----


def _o200k(number: str, short: str = "", but: str = "", line: str = r"\r\n/") -> str:
    """`short`: what may follow a word and belong to it; `but`: what is taken from the letters;
    `line`: what may end signs."""
    other = rf"\p{{Lm}}\p{{Lo}}\p{{M}}{but}"
    upper, lower, before = (
        rf"[\p{{Lu}}\p{{Lt}}{other}]",
        rf"[\p{{Ll}}{other}]",
        r"[^\r\n\p{L}\p{N}]?",
    )
    words = rf"{before}{upper}*{lower}+{short}|{before}{upper}+{lower}*{short}"
    return rf"{words}|{number}| ?[^\s\p{{L}}\p{{N}}]+[{line}]*|{_LINES}"


_O200K = Rules(_cut(_o200k(r"\p{N}{1,3}", f"{_SHORT}?")))
_TEKKEN = Rules(_cut(_o200k(r"\p{N}")), ignore_merges=True, adds_bos=True)
_KIMI_WORDS = _o200k(r"\p{N}{1,3}", f"{_SHORT}?", but=r"&&[^\p{Han}]", line=r"\r\n")
_KIMI = Rules(_cut(rf"\p{{Han}}+|{_KIMI_WORDS}"), ignore_merges=True)

# ---- DeepSeek ----

# The letters with two cases that the tokenizer.json lists, by their codes.
_CASED = _characters("""
    41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386
    388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba
    1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59
    1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec
    1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139
    213c-213f 2145-2149 214e 2183 2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b
    a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f
    104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943
""")
_SIGNS = _characters("21-2f 3a-7e ff01-ff0f ff1a-ff5e 2018-201f 3000-3002")
_EAST_ASIAN = _characters("4e00-9fa5 800-4e00 ac00-d7ff")
_HAN_KANA = _characters("4e00-9fa5 3040-309f 30a0-30ff")
_ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"

_DEEPSEEK_LLM = Rules(
    _cut(
        r"[\r\n]",
        rf"\s?[{_CASED}]+",
        rf"\s?[{_SIGNS}]+",
        r"\s+$",
        rf"[{_EAST_ASIAN}]+",
        r"\p{N}",
    )
)
_DEEPSEEK_CODER = Rules(_cut(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", rf"[{_EAST_ASIAN}]+", r"\p{N}"))
_DEEPSEEK_V3 = Rules(
    _cut(
        r"\p{N}{1,3}",
        rf"[{_HAN_KANA}]+",
        rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}",
    )
)

# ---- by the rule of GPT-2, after all else ----

_GPT2 = Rules(_cut(words=True))
_GPT_NEOX = Rules(_cut(words=True), compose=True)
_DIGITS = Rules(_cut(r"\p{N}", words=True))
_COMMAND_R = Rules(_cut(r"\p{N}", words=True), compose=True)
# Numbers are cut when bytes are letters already, some of which count as numbers.
_FALCON = Rules(
    Sequence(
        [
            Punctuation("contiguous"),
            ByteLevel(add_prefix_space=False),
            Digits(individual_digits=False),
            Split(Regex("[0-9][0-9][0-9]"), behavior="isolated"),
        ]
    )
)

PRE_TOKENIZERS = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "mpt": _GPT_NEOX,
    "olmo": _GPT_NEOX,
    "refact": _DIGITS,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "command-r": _COMMAND_R,
    "falcon": _FALCON,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "lfm2": _LLAMA3,
    "midm-2.0": _LLAMA3,
    "pixtral": _LLAMA3,
    "chatglm-bpe": _CL100K,
    "dbrx": _CL100K,
    "glm4": _CL100K,
    "deepseek-r1-qwen": _QWEN2,
    "qwen2": _QWEN2,
    "stablelm2": _QWEN2,
    "qwen35": _QWEN35,
    "gpt-4o": _O200K,
    "llama4": _O200K,
    "tekken": _TEKKEN,
    "kimi-k2": _KIMI,
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-v3": _DEEPSEEK_V3,
}
