"""What one sequence's params ask of all its rows, made ready once. numpy only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.base.sampling_params import SamplingParams

GREEDY_BELOW = 1e-5  # temperature

Shifts = tuple[NDArray[np.int64], NDArray[np.float64]]  # tokens, and what is added to their logits


class Controls:
    """The controls of one sequence. Never changes."""

    def __init__(self, params: SamplingParams, stop_ids: Sequence[int] = ()) -> None:
        self.greedy = params.temperature < GREEDY_BELOW
        self.penalised = params.repetition_penalty != 1 or bool(
            params.frequency_penalty or params.presence_penalty
        )
        # Beams are compared by the model's own logprobs.
        self.processed = params.logprobs_mode == "processed" and not params.use_beam_search
        self.numbers = (  # the first fields of `Controls` in csrc/sample.h
            0.0 if self.greedy else params.temperature,
            params.min_p,
            params.top_k,
            params.top_p,
            params.repetition_penalty,
            params.frequency_penalty,
            params.presence_penalty,
            self.processed,
        )
        self.allowed = _ids(params.allowed_token_ids)
        self.named = _ids(params.logprob_token_ids)
        bias = params.logit_bias or {}
        words = [tuple(word) for word in params.bad_word_ids or ()]
        single = [word[0] for word in words if len(word) == 1]
        always = [*bias.values(), *[-np.inf] * len(single)]
        self._always = _shifts([*bias, *single], always)
        # Until `min_tokens` are generated, the same and no stop token.
        self._at_first = _shifts([*bias, *single, *stop_ids], [*always, *[-np.inf] * len(stop_ids)])
        self._min_tokens = params.min_tokens
        # Bad words of several tokens by the one before their last: they need a look at the output.
        self._words: dict[int, list[tuple[int, ...]]] = {}
        for word in words:
            if len(word) > 1:
                self._words.setdefault(word[-2], []).append(word)

    def shifts(self, output: NDArray[np.integer]) -> Shifts:
        """What is added to logits after `output`: -inf masks a token, and a NaN stays visible."""
        shifts = self._at_first if len(output) < self._min_tokens else self._always
        if self._words and (ends := self._ends(output)):
            more = _shifts(ends, [-np.inf] * len(ends))
            shifts = np.concatenate([shifts[0], more[0]]), np.concatenate([shifts[1], more[1]])
        return shifts

    def _ends(self, output: NDArray[np.integer]) -> list[int]:
        """The last tokens of bad words that `output` has begun."""
        if not len(output):
            return []
        return [
            word[-1]
            for word in self._words.get(int(output[-1]), ())
            if tuple(output[1 - len(word) :].tolist()) == word[:-1]
        ]


def _ids(ids: Sequence[int] | None) -> NDArray[np.int32]:
    return np.array(ids or (), dtype=np.int32)


def _shifts(tokens: Sequence[int], values: Iterable[float]) -> Shifts:
    return np.array(tokens, dtype=np.int64), np.fromiter(values, np.float64, len(tokens))
