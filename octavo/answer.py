"""Offline prompts and answers: what was asked becomes a list, deltas become whole outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.base.errors import RequestError
from octavo.base.output import CompletionOutput, Logprob, RequestOutput
from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.text.assembler import TextDelta
from octavo.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | dict[str, Any]


class Answer:
    """One prompt's output while it grows; of a prompt that was refused, the error alone."""

    def __init__(
        self, request: Request | None, output: RequestOutput, tokenizer: Tokenizer | None = None
    ) -> None:
        self.request = request
        self.output = output
        self._tokenizer = tokenizer
        count = request.params.n if request else 1
        output.outputs = [CompletionOutput(index=i, token_ids=[]) for i in range(count)]
        if request is None:
            output.outputs[0].finish_reason = "error"
        elif request.params.prompt_logprobs is not None:
            output.prompt_logprobs = [None] * max(1, request.params.prompt_logprob_start)

    @property
    def is_whole(self) -> bool:
        return all(completion.finish_reason is not None for completion in self.output.outputs)

    def feed(self, delta: TextDelta) -> None:
        if delta.prompt_logprobs:
            assert self.output.prompt_logprobs is not None, "nobody asked for them"
            self.output.prompt_logprobs += [self._by_token(p) for p in delta.prompt_logprobs]
        mine = self.output.outputs[delta.index]
        mine.text += delta.text
        mine.token_ids += delta.token_ids
        if delta.token_ids:
            _count_epoch(mine, delta.epoch, len(delta.token_ids))
        if delta.logprobs:
            _add_logprobs(mine, delta.logprobs, self._tokenizer)
        if delta.score is not None:
            mine.cumulative_logprob = delta.score
        mine.num_drafts += delta.num_drafts
        mine.num_accepted += delta.num_accepted
        mine.structured = delta.structured
        mine.finish_reason, mine.stop_reason = delta.finish_reason, delta.stop_reason
        self.output.error = delta.error or self.output.error
        self.output.num_cached_tokens = max(self.output.num_cached_tokens, delta.num_cached_tokens)
        self.output.miss = delta.miss or self.output.miss

    def _by_token(self, position: TokenLogprobs) -> dict[int, Logprob]:
        return by_token(position, self._tokenizer)


def by_token(position: TokenLogprobs, tokenizer: Tokenizer | None) -> dict[int, Logprob]:
    """The token at the position first, then the likeliest ones, then those of
    `logprob_token_ids`."""
    mine = (position.token_id, position.logprob, position.rank)
    top = [(token, logprob, rank) for rank, (token, logprob) in enumerate(position.top, 1)]
    named = [(token, logprob, None) for token, logprob in position.named]
    found: dict[int, Logprob] = {}
    for token, logprob, rank in (mine, *top, *named):
        if token not in found:
            text = None if tokenizer is None else tokenizer.token(token)
            found[token] = Logprob(logprob, rank, text)
    return found


def _add_logprobs(
    mine: CompletionOutput, positions: list[TokenLogprobs], tokenizer: Tokenizer | None
) -> None:
    mine.logprobs = (mine.logprobs or []) + [by_token(p, tokenizer) for p in positions]
    total = sum(position.logprob for position in positions)
    mine.cumulative_logprob = (mine.cumulative_logprob or 0.0) + total
    masses = [p.log_mass for p in positions if p.log_mass is not None]
    if masses:
        mine.log_masses = (mine.log_masses or []) + masses


def _count_epoch(mine: CompletionOutput, epoch: str, count: int) -> None:
    if mine.epochs and mine.epochs[-1][0] == epoch:
        count += mine.epochs.pop()[1]
    mine.epochs.append((epoch, count))


def as_dict(prompt: Prompt) -> dict[str, Any]:
    if isinstance(prompt, dict):
        return prompt
    return {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}


def listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several -> several. A list of ints is one prompt."""
    if not isinstance(prompts, Sequence | dict) or isinstance(prompts, bytes):
        raise RequestError(f"prompts must not be of type {type(prompts).__name__}", "prompts")
    single = isinstance(prompts, str | dict) or bool(prompts and isinstance(prompts[0], int))
    return [prompts] if single else list(prompts)  # type: ignore[list-item,arg-type]


def spread(
    params: SamplingParams | Sequence[SamplingParams], count: int
) -> Sequence[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if isinstance(params, dict) or not all(isinstance(p, SamplingParams) for p in params):
        raise RequestError(
            "sampling_params must be SamplingParams, one or a list", "sampling_params"
        )
    if len(params) != count:
        raise RequestError(f"{len(params)} sampling_params for {count} prompts", "sampling_params")
    return params
