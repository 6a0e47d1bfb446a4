"""Many schemas, random logits and few tokens: what had room to be valid is valid."""

from __future__ import annotations

import json
import random
from collections import deque
from functools import cache
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from schemas import SCHEMAS
from vocabularies import byte_level

from octavo.base.structured import StructuredOutputsParams
from octavo.grammar.completion import Completion
from octavo.grammar.grammars import Maker
from octavo.grammar.guide import Guide, Structure
from octavo.grammar.vocabulary import Vocabulary
from octavo.text.tokenizer import Tokenizer

BUDGETS = (8, 16, 32, 64, 400)
MOST_PUSHED = 6_000  # tokens tried to find the fewest that end an answer


@cache
def maker() -> Maker:
    tokenizer = Tokenizer(byte_level(), special_tokens={"eos_token": "<|im_end|>"})
    tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    assert tokenizer.eos_token_id is not None
    return Maker(Vocabulary(tokens, tokenizer.special_ids, (tokenizer.eos_token_id,)))


def write(structure: Structure, budget: int, rng: random.Random) -> tuple[str, bool]:
    """An answer of random logits, and whether it ended by itself."""
    vocabulary = maker().vocabulary
    guide, text = Guide(vocabulary, structure, None, budget), b""
    for _ in range(budget):
        [mask] = guide.masks(())
        assert mask is not None
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        token = int(rng.choice(np.flatnonzero(bits)))
        if not guide.allows(token):
            [token] = np.flatnonzero(np.unpackbits(guide.only().view(np.uint8), bitorder="little"))
            assert bits[token]
        guide.take(int(token))
        if token in vocabulary.eos_ids:
            return text.decode(), True
        text += vocabulary.tokens[token]
    return text.decode(errors="replace"), False


@pytest.mark.parametrize(("name", "schema"), SCHEMAS, ids=[name for name, _ in SCHEMAS])
def test_answers_that_end_or_had_room_are_valid(name: str, schema: Any) -> None:
    structure = maker().structure(StructuredOutputsParams(json=json.dumps(schema)), None)
    assert structure.completion is not None
    checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    rng = random.Random(name)
    for budget in BUDGETS:
        text, ended = write(structure, budget, rng)
        if ended or structure.completion.bound <= budget:
            checker.validate(json.loads(text))


def test_most_bounds_fit_and_are_near_the_fewest_tokens() -> None:
    fitting, ratios = 0, []
    for _, schema in SCHEMAS:
        structure = maker().structure(StructuredOutputsParams(json=json.dumps(schema)), None)
        assert structure.completion is not None
        fitting += structure.completion.bound <= BUDGETS[-2]
        fewest = fewest_tokens(structure.completion)
        if fewest is not None:
            ratios.append(structure.completion.bound / fewest)
    assert fitting > 300 and len(ratios) > 100, (fitting, len(ratios))
    # Of a text that is not given, such as four digits, the easiest to read is taken, though tokens
    # of other digits may be longer.
    assert max(ratios) <= 2 and sum(ratio > 1.5 for ratio in ratios) <= 0.04 * len(ratios), ratios


def fewest_tokens(completion: Completion) -> int | None:
    """By breadth-first search; None where that takes too long."""
    seen, waiting, pushed = {frozenset(completion.start.pairs)}, deque([(completion.start, 0)]), 0
    while waiting:
        position, count = waiting.popleft()
        if completion.may_end(position):
            return count
        for token in maker().vocabulary.ids.values():
            pushed += 1
            after = completion.push(position, token)
            if after is not None and frozenset(after.pairs) not in seen:
                seen.add(frozenset(after.pairs))
                waiting.append((after, count + 1))
        if pushed > MOST_PUSHED:
            return None
    return None
