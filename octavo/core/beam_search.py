"""Which beams live on: scores and tokens, nothing of blocks or sequences.

As in Hugging Face Transformers: of all continuations of all beams the best are looked at; those
among the first `width` that stop become hypotheses, the best `width` that do not are the next
beams. A hypothesis' score is its sum of logprobs / length ** length_penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Literal

from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request


@dataclass(frozen=True, slots=True)
class Beam:
    """What one beam generated, the newest token included."""

    total: float  # sum of logprobs
    token_ids: list[int]
    logprobs: list[TokenLogprobs]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A beam that stopped."""

    score: float
    beam: Beam


class BeamSearch:
    """The search of one request. `beams` live; it is `done` when `hypotheses` are final; `stopped`
    are the beams before these that a hypothesis continues, by index."""

    def __init__(self, request: Request) -> None:
        params = request.params
        assert params.max_tokens is not None, "the door left it open"
        self._width = params.n
        self._max_tokens = params.max_tokens
        self._penalty = params.length_penalty
        self._early: bool | Literal["never"] = params.early_stopping
        self._shown = params.logprobs or 0
        self._stops = frozenset((*request.eos_token_ids, *params.stop_ids))
        self.beams = [Beam(0.0, [], [])]
        self.hypotheses: list[Hypothesis] = []  # the best first
        self.stopped: set[int] = set()
        self.done = False

    @property
    def num_logprobs(self) -> int:
        """Continuations of each beam that may matter: as many as may stop, and as many again as
        there are beams."""
        return self._width * (1 + max(1, len(self._stops)))

    def advance(self, drawn: Sequence[TokenLogprobs]) -> list[int]:
        """Take each beam's likeliest tokens; for each of the new `beams` the index of the old one
        that it continues."""
        found = (
            (self.beams[i].total + logprob, i, rank, token)
            for i, position in enumerate(drawn)
            for rank, (token, logprob) in enumerate(position.top)
        )
        best = nlargest(self.num_logprobs, found, key=itemgetter(0))
        last = len(self.beams[0].token_ids) + 1 >= self._max_tokens
        ended = [last or token in self._stops for *_, token in best]
        self.stopped.clear()
        for (total, i, rank, _), stops in zip(best[: self._width], ended, strict=False):
            if stops:
                self._add(self._continue(self.beams[i], drawn[i], rank, total))
                self.stopped.add(i)
        self.hypotheses = self.hypotheses[: self._width]
        on = [one for one, stops in zip(best, ended, strict=True) if not stops][: self._width]
        self.beams = [
            self._continue(self.beams[i], drawn[i], rank, total) for total, i, rank, _ in on
        ]
        self.done = not self.beams or self._is_settled()
        return [i for _, i, _, _ in on]

    def finish_reason(self, hypothesis: Hypothesis) -> Literal["stop", "length"]:
        return "stop" if hypothesis.beam.token_ids[-1] in self._stops else "length"

    def _continue(self, beam: Beam, drawn: TokenLogprobs, rank: int, total: float) -> Beam:
        token, logprob = drawn.top[rank]
        shown = TokenLogprobs(token, logprob, rank + 1, drawn.top[: self._shown])
        return Beam(total, [*beam.token_ids, token], [*beam.logprobs, shown])

    def _add(self, beam: Beam) -> None:
        score = beam.total / len(beam.token_ids) ** self._penalty
        self.hypotheses.append(Hypothesis(score, beam))
        self.hypotheses.sort(key=lambda hypothesis: -hypothesis.score)

    def _is_settled(self) -> bool:
        """Whether no beam can become one of the best any more, or `early_stopping` asks no more."""
        if len(self.hypotheses) < self._width:
            return False
        if self._early is True:
            return True
        length = len(self.beams[0].token_ids)
        if self._early == "never" and self._penalty > 0:
            length = self._max_tokens
        best: float = self.beams[0].total / length**self._penalty
        return best <= self.hypotheses[-1].score
