"""What comes back: `Delta` from the scheduler, `RequestOutput` for a person; `EngineStats`."""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.base.plan import TokenLogprobs

FinishReason = Literal["stop", "length", "repetition", "error", "abort"]


class Structured(msgspec.Struct, frozen=True):
    """What became of an answer that was to have a structure."""

    complete: bool  # it has
    # Index of the output token from which on only what still led to a whole answer within
    # max_tokens was written; None: it was never needed.
    closed_at: int | None = None


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one step added to one sequence of a request."""

    request_id: str
    token_ids: list[int]
    index: int = 0  # of the sequence in its request; of a beam search, by score
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the stop token id or string that ended it
    num_cached_tokens: int = 0  # prompt tokens whose KV was found in the cache
    miss: str | None = None  # why not more
    score: float | None = None  # of a beam search: the sum of logprobs
    epoch: str = ""  # weights that drew the tokens
    error: str | None = None  # why, where finish_reason is "error"
    prompt_logprobs: list[TokenLogprobs] | None = None  # of the next prompt positions
    num_drafts: int = 0  # verified for these tokens
    num_accepted: int = 0  # of these
    structured: Structured | None = None  # once it has ended, if a structure was asked for


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's numbers after a step. `*_total` only grow."""

    running: int = 0
    waiting: int = 0
    kv_blocks_used: int = 0  # referenced by a table; free but cached blocks do not count
    kv_blocks: int = 0  # all usable blocks of attention
    states_used: int = 0  # recurrent ones of sequences; those kept to be found do not count
    states: int = 0  # all usable ones
    preemptions_total: int = 0
    kv_copies_total: int = 0  # blocks copied, to be written or as the beginning of a prompt
    prefix_query_tokens_total: int = 0
    prefix_hit_tokens_total: int = 0
    computed_tokens_total: int = 0
    steps_total: int = 0
    drafts_total: int = 0  # rows that verified drafts
    draft_tokens_total: int = 0
    accepted_tokens_total: int = 0
    accepted_per_position_total: list[int] = []  # drafts accepted as the first, the second ...


class OpCost(msgspec.Struct, frozen=True):
    """What one kind of op has cost since the model was loaded."""

    name: str
    seconds: float
    operations: dict[str, float]  # by what is multiplied: "f32", "int8"...; a multiply-add is two
    bytes: float  # of weights and KV read

    def minus(self, other: OpCost) -> OpCost:
        operations = {
            operand: count - other.operations.get(operand, 0.0)
            for operand, count in self.operations.items()
        }
        return OpCost(self.name, self.seconds - other.seconds, operations, self.bytes - other.bytes)


class Logprob(msgspec.Struct, frozen=True):
    """One token at one position, as vLLM's users know it."""

    logprob: float
    rank: int | None  # from 1, the likeliest; None of a token that was only asked for by its id
    decoded_token: str | None = None


class CompletionOutput(msgspec.Struct, kw_only=True):
    index: int = 0
    text: str = ""
    token_ids: list[int] = []
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None  # by position: token id -> logprob
    # By position, in processed mode: log of the share of the distribution that survived its cuts.
    log_masses: list[float] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    epochs: list[tuple[str, int]] = []  # weights, and how many tokens they drew, in order
    num_drafts: int = 0  # that were verified
    num_accepted: int = 0  # of these
    structured: Structured | None = None  # what became of the structure that was asked for


class RequestOutput(msgspec.Struct, kw_only=True):
    """A whole answer. `error` is set, and `outputs` has finish_reason "error", where the prompt
    was refused or its step failed."""

    request_id: str
    prompt: str | None = None
    prompt_token_ids: list[int] = []
    seed: int | None = None  # that gives these answers again
    # By position: token id -> logprob; None for the first, which follows nothing, and for those
    # before `prompt_logprob_start`.
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    outputs: list[CompletionOutput] = []
    finished: bool = True
    num_cached_tokens: int = 0
    miss: str | None = None  # why the cache held no more of the prompt; None where it held all
    error: str | None = None
