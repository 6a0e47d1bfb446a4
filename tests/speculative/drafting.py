"""Engines that draft, and what their proposers were asked and said."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from octavo import SamplingParams
from octavo.core.drafting import Drafting
from octavo.llm import LLM
from octavo.speculative.proposer import DraftRow

Said = list[tuple[list[int], list[int]]]  # known tokens, and guesses behind them


def load(folder: Any, impl: str = "native", **options: Any) -> LLM:
    options = {"dtype": "float32", "kv_memory": "2MiB", "max_model_len": 200, **options}
    return LLM(str(folder), skip_tokenizer_init=True, model_impl=impl, **options)


def some_requests(count: int, **more: Any) -> list[tuple[list[int], SamplingParams]]:
    """Greedy and sampled ones, of one draw and several."""
    rng, made = random.Random(count), []
    for seed in range(count):
        prompt = [rng.randrange(3, 500) for _ in range(rng.randint(1, 70))]
        params = SamplingParams(
            seed=seed,
            n=rng.choice([1, 1, 1, 2]),
            temperature=rng.choice([0.0, 0.0, 0.3, 1.0]),
            top_p=rng.choice([1.0, 0.9]),
            presence_penalty=rng.choice([0.0, 0.5]),
            max_tokens=rng.randint(1, 30),
            logprobs=rng.choice([None, 2]),
            **more,
        )
        made.append((prompt, params))
    return made


def answers(llm: LLM, asked: list[tuple[list[int], SamplingParams]]) -> list[Any]:
    prompts, params = zip(*asked, strict=True)
    outputs = llm.generate(list(prompts), list(params), use_tqdm=False)
    return [[(c.token_ids, c.logprobs, c.finish_reason) for c in o.outputs] for o in outputs]


def listen(monkeypatch: Any, kind: type) -> Said:
    """What proposers of a kind guess from now on; rows without guesses are left out."""
    said: Said = []
    propose = kind.propose

    def told(self: Any, rows: list[DraftRow]) -> Any:
        guesses = propose(self, rows)
        for row, guess in zip(rows, guesses, strict=True):
            assert len(guess) <= row.most
            if guess:
                said.append((row.token_ids.tolist(), list(guess)))
        return guesses

    monkeypatch.setattr(kind, "propose", told)
    return said


def always(monkeypatch: Any) -> None:
    """Guesses are asked for whether they pay or not, so that a test depends on no clock."""
    monkeypatch.setattr(Drafting, "limit", lambda self, rows: len(self.accepted))


def close_to_best(logits: np.ndarray, token: int) -> bool:
    """Whether it is the likeliest, as far as roundings tell."""
    return bool(logits[token] > logits.max() - 1e-3 * np.abs(logits).max())
