"""Sampling controls and logprobs all the way through `LLM`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tiny_chat import tiny_chat_model

from octavo import LLM, SamplingParams

PROMPT = list(range(10, 50))


class Only:
    """A logits processor: leaves one token."""

    def __call__(self, logits: np.ndarray, token_ids: Any, prompt_len: int, args: Any) -> None:
        kept = logits[args["token"]]
        logits[:] = -np.inf
        logits[args["token"]] = kept


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    return LLM(
        str(tiny_chat_model(tmp_path_factory.mktemp("tiny"))),
        kv_memory="8MiB",
        threads=1,
        max_logprobs=-1,
        logprobs_mode="processed",
        logits_processors=f"only={__name__}:Only",
    )


def answer(llm, prompt=PROMPT, **controls):
    params = SamplingParams(**{"seed": 1, "max_tokens": 8, "ignore_eos": True, **controls})
    [output] = llm.generate([prompt], params, use_tqdm=False)
    assert output.error is None
    return output.outputs[0]


def test_allowed_tokens_alone_are_drawn(llm):
    assert set(answer(llm, allowed_token_ids=[5, 9], max_tokens=30).token_ids) == {5, 9}


def test_bad_words_are_not_written(llm):
    free = answer(llm, "a", temperature=0.0)
    words = [llm.text.tokenizer.decode([token]) for token in free.token_ids]
    [word] = [word for word in words if word.strip().isalnum()][:1]
    kept = answer(llm, "a", temperature=0.0, bad_words=[word])
    assert word in free.text and word not in kept.text


def test_a_processor_is_named_by_the_request(llm):
    controls = {"logits_processors": ["only"], "extra_args": {"token": 7}, "max_tokens": 3}
    named = answer(llm, **controls, logprobs=0)
    assert named.token_ids == [7, 7, 7]
    assert [position[7].logprob for position in named.logprobs] == [0, 0, 0]


def test_logprobs_of_what_was_drawn_from(llm):
    controls = {"logprobs": -1, "top_k": 4, "temperature": 0.7}
    processed = answer(llm, **controls)
    for position in processed.logprobs:
        assert len(position) == 4
        assert sum(math.exp(p.logprob) for p in position.values()) == pytest.approx(1)
    raw = answer(llm, **controls, logprobs_mode="raw")
    assert raw.token_ids == processed.token_ids
    assert all(len(position) == llm.info.vocab_size for position in raw.logprobs)


def test_logprobs_of_tokens_by_id(llm):
    told = answer(llm, logprob_token_ids=[3, 4], logprobs_mode="raw")
    for token, position in zip(told.token_ids, told.logprobs, strict=True):
        assert set(position) == {token, 3, 4}
        assert all(position[t].rank is None for t in {3, 4} - {token})
