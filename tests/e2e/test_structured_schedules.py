"""Structures under drafts, steps ahead, preemption and small steps: the answers of plain steps."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import jsonschema
import pytest
from tiny_chat import tiny_chat_model

from octavo.base.sampling_params import SamplingParams
from octavo.base.structured import Marker, StructuredOutputsParams, Thinking
from octavo.llm import LLM

WAYS: dict[str, dict[str, Any]] = {
    "ngram": {"speculation": "ngram"},
    "ahead": {"async_scheduling": True},
    "both": {"speculation": "ngram", "num_drafts": 5, "async_scheduling": True},
    "short of memory": {"kv_memory": "288KiB", "max_model_len": 120},
    "both, short of memory": {
        "speculation": "suffix",
        "async_scheduling": True,
        "kv_memory": "288KiB",
        "max_model_len": 120,
    },
    "small steps": {"max_num_seqs": 4, "max_num_batched_tokens": 5, "speculation": "ngram"},
}
TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "size": {"type": "integer", "minimum": -5, "maximum": 120},
        "leaves": {"type": "array", "items": {"$ref": "#"}, "maxItems": 3},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}
STRUCTURES: list[dict[str, Any]] = [
    {"json": TREE},
    {"regex": r"(?:the cat sat ){2,9}(?:down|up)"},
    {"regex": r"\d{3}-\d{4}(?: ext\. [a-z]{5,})?"},
    {"choice": ["Paris", "Parisian", "Berlin, the capital of Germany"]},
]
BUDGET = Thinking(opens=Marker("<tool>"), closes=Marker("\n\n"), state="open", budget=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_chat_model(tmp_path_factory.mktemp("chat")))


@pytest.fixture(scope="module")
def plain(folder: str) -> Callable[[int], list[Any]]:
    llm = load(folder)
    return cache(lambda count: answers(llm, requests(count)))


def load(folder: str, **options: Any) -> LLM:
    return LLM(folder, **{"dtype": "float32", "kv_memory": "4MiB", "max_model_len": 256, **options})


def requests(count: int) -> list[tuple[str, SamplingParams]]:
    rng = random.Random(count)
    made = []
    for seed in range(count):
        wanted = rng.choice([*STRUCTURES, None])
        params = SamplingParams(
            n=rng.choice([1, 1, 3]),
            seed=seed,
            temperature=rng.choice([0.0, 0.5, 1.0]),
            top_p=rng.choice([1.0, 0.9]),
            max_tokens=rng.choice([1, 3, 8, 12, 20, 40]),
            logprobs=rng.choice([None, 2]),
            structured_outputs=wanted and StructuredOutputsParams(**wanted),
            thinking=rng.choice([None, None, BUDGET]),
        )
        made.append(("the cat sat " * rng.randint(1, 5), params))
    return made


def answers(llm: LLM, asked: list[tuple[str, SamplingParams]]) -> list[Any]:
    prompts, params = zip(*asked, strict=True)
    outputs = llm.generate(list(prompts), list(params), use_tqdm=False)
    return [
        [(c.text, c.token_ids, c.logprobs, c.finish_reason, c.structured) for c in output.outputs]
        for output in outputs
    ]


@pytest.mark.parametrize("way", WAYS)
def test_answers_are_those_of_plain_steps(
    folder: str, plain: Callable[[int], list[Any]], way: str
) -> None:
    llm = load(folder, **WAYS[way])
    assert answers(llm, requests(100)) == plain(100)
    assert llm.stats.kv_blocks_used == 0
    if "speculation" in WAYS[way]:
        assert llm.stats.accepted_tokens_total > 20
    if "kv_memory" in WAYS[way]:
        assert llm.stats.preemptions_total > 0


def test_answers_have_their_structure(plain: Callable[[int], list[Any]]) -> None:
    kinds = set()
    for (_, params), found in zip(requests(100), plain(100), strict=True):
        for text, tokens, _, reason, structured in found:
            wanted = params.structured_outputs
            assert (structured is None) == (wanted is None)
            if wanted is None:
                continue
            kinds.add((wanted.kind, structured.complete, structured.closed_at is not None, reason))
            answer = text.partition(BUDGET.closes.text)[2].lstrip() if params.thinking else text
            assert fits(wanted, answer) == structured.complete
            if structured.closed_at is not None:
                assert structured.complete and reason == "length"
                assert 0 <= structured.closed_at < len(tokens)
            if reason == "stop":
                assert structured.complete
    assert {kind for kind, *found in kinds if found == [True, True, "length"]} == {
        "json",
        "regex",
        "choice",
    }
    assert {kind for kind, *found in kinds if found == [True, False, "stop"]} >= {"regex", "choice"}


def fits(wanted: StructuredOutputsParams, answer: str) -> bool:
    if wanted.choice is not None:
        return answer in wanted.choice
    if wanted.regex is not None:
        return re.fullmatch(wanted.regex, answer) is not None
    assert isinstance(wanted.json, str)
    try:
        jsonschema.validate(json.loads(answer), json.loads(wanted.json))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def test_closing_in_time_can_be_switched_off(folder: str) -> None:
    llm = load(folder)
    for closes in (True, False):
        wanted = StructuredOutputsParams(regex="[a-z ]*ab{30}", close_in_time=closes)
        params = SamplingParams(max_tokens=40, structured_outputs=wanted, seed=1)
        [output] = llm.generate("the", params, use_tqdm=False)
        [answer] = output.outputs
        assert answer.structured is not None and answer.structured.complete == closes
        assert answer.finish_reason == "length"
        assert (answer.structured.closed_at is not None) == closes


def test_an_impossible_structure_costs_nobody_else_anything(folder: str) -> None:
    llm = load(folder)
    bad = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a(?=b)c"))
    good = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a+"), max_tokens=5)
    outputs = llm.generate(["x", "x"], [bad, good], use_tqdm=False)
    assert outputs[0].error == "regex: no text matches it"
    assert outputs[0].outputs[0].finish_reason == "error"
    assert set(outputs[1].outputs[0].text) == {"a"}
