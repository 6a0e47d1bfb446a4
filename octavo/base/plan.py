"""What crosses the wall between deciding and computing: `StepPlan` down, `StepResult` up.

A row says "from position `start`, these `length` tokens": chunked prefill, prefix hits and decode
are the same sentence. New sequences cross whole, forks too; known ones as differences.
"""

from __future__ import annotations

import msgspec

from octavo.base.sampling_params import SamplingParams


class NewSequence(msgspec.Struct, frozen=True):
    """A sequence the worker does not know (first admitted, or resumed after preemption)."""

    sequence_id: int
    token_ids: list[int]  # all known tokens: prompt, then what was generated so far
    prompt_len: int
    params: SamplingParams
    stop_ids: tuple[int, ...]  # masked until `min_tokens` are generated
    logprobs: int | None  # likeliest tokens to tell of, as in `SamplingParams`


class Row(msgspec.Struct, frozen=True):
    """One sequence's part of a step."""

    sequence_id: int
    start: int  # position of the first token computed; see `follows`
    length: int  # tokens computed, drafts apart
    kept: int  # blocks at the beginning of each table that are as the worker knows them
    # Per KV group: block ids that follow these. Of a state group always the whole table: the block
    # of the state before `start` (0: the state of no tokens), and the one that is to be written.
    new_blocks: list[list[int]]
    draws: tuple[int, ...]  # children whose next token is drawn from the last token's logits
    drafts: int = 0  # guesses that may be verified behind its last token; there are blocks for them
    # Its one token is the newest one, which the step before draws; it lies at `start` or, where
    # that step verifies drafts, behind it.
    follows: bool = False
    tells: tuple[int, int] = (0, 0)  # prompt positions whose logprobs are told: first, end


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """A block to copy in all its layers."""

    pool: int
    source: int
    target: int


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A block that goes to the swap tier, or comes back from it, under a name."""

    pool: int
    block: int
    name: str


class StepPlan(msgspec.Struct, frozen=True):
    """Who computes which tokens, in which blocks.

    Saves and then copies are made before anything is written: all sources are read before any
    target changes. Loads only begin: no row touches their blocks before a result has told of them.
    """

    step: int
    new: list[NewSequence]
    rows: list[Row]
    dropped: list[int]  # sequences whose state the worker forgets before this step
    copies: list[Copy] = []
    saves: list[Move] = []
    loads: list[Move] = []
    discards: list[str] = []  # names that the swap tier forgets
    limit: int = 0  # drafts that its rows may have, at most

    @property
    def num_tokens(self) -> int:
        """Drafts apart."""
        return sum(row.length for row in self.rows)


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Logprobs at one position: of the model's own distribution, before sampling controls; or in
    processed mode of that which the token was drawn from, after all of them."""

    token_id: int
    logprob: float
    rank: int  # of the drawn token, from 1
    top: list[tuple[int, float]]  # the k likeliest (token id, logprob), likeliest first
    named: list[tuple[int, float]] = []  # those of `logprob_token_ids`
    # In processed mode, log of the share of the distribution that min_p, top_k and top_p left.
    log_mass: float | None = None


class Sampled(msgspec.Struct, frozen=True):
    """What a row drew for one child, or why it could not (that row alone fails). The last of
    several children is the sequence itself.

    A row with drafts may draw several tokens: the same that it would draw one by one.
    """

    sequence_id: int
    child: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    error: str | None = None
    drafts: int = 0  # that were verified
    closed_at: int | None = None  # which of these took the place of one that left too few tokens
    is_whole: bool | None = None  # the answer has all that its structure asks for

    @property
    def accepted(self) -> int:
        """Drafts: all tokens but the last."""
        return max(0, len(self.token_ids) - 1)


class Told(msgspec.Struct, frozen=True):
    """Logprobs of prompt tokens at consecutive positions from `start` on, or why there are none."""

    sequence_id: int
    start: int
    logprobs: list[TokenLogprobs]
    error: str | None = None


class StepResult(msgspec.Struct, frozen=True):
    """What was drawn; or, with `error`, that the whole step failed."""

    step: int
    rows: list[Sampled]
    error: str | None = None
    loaded: list[tuple[str, bool]] = []  # loads that have ended, and whether they are intact
    told: list[Told] = []
    seconds: float = 0.0  # that the step took
