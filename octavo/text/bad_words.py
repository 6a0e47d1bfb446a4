"""Bad words as tokens: what a request must never write, in the ways a tokenizer writes it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from octavo.base.errors import RequestError
from octavo.base.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer


def spelled(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """`params` with `bad_word_ids`, if it has bad words and not their tokens yet.

    Raises:
        RequestError: a word holds a lone surrogate, which is no character.
    """
    if not params.bad_words or params.bad_word_ids is not None:
        return params
    try:
        ids = bad_word_ids(params.bad_words, tokenizer)
    except RequestError as error:
        raise RequestError("bad_words must be text", "bad_words") from error
    return msgspec.structs.replace(params, bad_word_ids=ids)


def bad_word_ids(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each word's tokens, at the beginning of a text and behind a space; once where those agree.

    Other ways to cut a word into tokens remain open, as they do in vLLM.
    """
    ways = (prefix + word.lstrip() for word in words for prefix in ("", " "))
    found = (tuple(tokenizer.encode(way, add_special_tokens=False)) for way in ways)
    return [list(ids) for ids in dict.fromkeys(found) if ids]
