"""One stream of tokens being generated, and its request, as the scheduler sees them."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.base.output import FinishReason
from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request
from octavo.core.beam_search import BeamSearch
from octavo.core.miss import Miss
from octavo.core.prefix import Prefix
from octavo.core.repetition import Repetitions


@dataclass(slots=True, eq=False)
class RequestState:
    """A request and what its sequences have in common."""

    request: Request
    number: int  # of arrival
    search: BeamSearch | None = None
    unborn: int = 0  # sequences that will be forked when the prompt is computed
    alive: dict[int, Sequence] = field(default_factory=dict)  # by child
    preemptions: int = 0
    prompt_hit: int | None = None  # prompt tokens found at first admission
    miss: Miss | None = None  # why not more
    tell_from: int = 0  # the next prompt position whose logprobs are to be told

    def __post_init__(self) -> None:
        params = self.request.params
        told = params.prompt_logprobs is not None
        # The first token follows nothing.
        self.tell_from = max(1, params.prompt_logprob_start) if told else self.prompt_len

    @property
    def has_begun(self) -> bool:
        return self.prompt_hit is not None

    @property
    def prompt_len(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def tells(self) -> bool:
        """Whether logprobs of prompt tokens are still to be told."""
        return self.tell_from < self.prompt_len

    @property
    def final_len(self) -> int:
        """Tokens of each sequence at its end, at most."""
        assert self.request.params.max_tokens is not None, "the door left it open"
        return self.prompt_len + self.request.params.max_tokens


@dataclass(slots=True, eq=False)
class Sequence:
    """Life of a sequence: 0 <= num_cached <= num_computed <= num_known; when scheduled,
    num_known - num_computed >= 1, or a row under way draws its next token.

        known     | prompt, generated                        | what rows under way draw
        computed  | as if these had ended            | drafts |
    """

    sequence_id: int
    state: RequestState
    child: int  # index in its request
    order: tuple[int, int, int]  # (priority, arrival, child); smaller runs first
    prefix: Prefix
    token_ids: list[int]  # known: prompt, then what was generated
    times_passed: int = 0  # while it was first in the queue
    reserves: bool = False  # holds a claim on blocks for all it may ever generate
    tables: list[list[int]] = field(default_factory=list)  # per KV group; empty when not running
    slid: list[int] = field(default_factory=list)  # blocks at the front of each that are null
    num_cached: int = 0
    num_computed: int = 0
    under_way: list[int] = field(default_factory=list)  # of rows that draw: tokens, at most
    num_published: int = 0  # blocks whose content the index was told of
    is_introduced: bool = False  # the worker knows it
    num_sent: int = 0  # blocks of each table that are as the worker knows them
    life: int = 0  # times that it was admitted
    num_loading: int = 0  # blocks that come back from the swap tier
    is_spoilt: bool = False  # one of them could not
    likeliest: TokenLogprobs | None = None  # its next tokens, while siblings compute theirs
    repetitions: Repetitions | None = None  # of its output, where it ends by them
    closed_at: int | None = None  # output token from which on its structure was closed in time

    @property
    def request(self) -> Request:
        return self.state.request

    @property
    def num_known(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.state.prompt_len

    @property
    def num_expected(self) -> int:
        """Tokens known once the rows under way have ended, at most."""
        return len(self.token_ids) + sum(self.under_way)

    @property
    def num_left(self) -> int:
        """Tokens that may be generated besides those, at least."""
        return self.state.final_len - self.num_expected

    @property
    def most_hit(self) -> int:
        """Tokens that need not be computed: the last one is, as its logits are wanted, and so is
        what tells of prompt tokens."""
        state = self.state
        if self.request.params.skip_reading_prefix_cache and not state.has_begun:
            return 0
        if state.tells:
            return min(self.num_known, state.tell_from) - 1
        return self.num_known - 1

    @property
    def claim(self) -> int:
        """Tokens that it has a right to blocks for. The last token is never computed."""
        if not self.reserves:
            return self.num_known
        return max(self.num_known, self.state.final_len - 1)

    @property
    def is_ready(self) -> bool:
        """Whether there is something to compute now. The token that a row under way draws can be,
        unless beams are chosen first or it may be the last."""
        if self.num_loading or self.is_idle:
            return False
        if self.num_computed < self.num_known:
            return True
        return bool(self.under_way) and self.state.search is None and self.num_left > 0

    @property
    def is_idle(self) -> bool:
        """Nothing to compute: it waits for its siblings in a beam search."""
        return self.likeliest is not None

    def check(self) -> None:
        counts = (self.num_cached, self.num_computed, self.num_known)
        assert 0 <= counts[0] <= counts[1] <= counts[2], counts

    def append(self, token_id: int) -> tuple[FinishReason | None, int | None]:
        """Add a generated token; why it ends the sequence, if it does, and the stop id."""
        self.token_ids.append(token_id)
        repeats = self.repetitions is not None and self.repetitions.append(token_id)
        request, generated = self.request, self.num_generated
        may_end = generated >= request.params.min_tokens
        if may_end:
            if token_id in request.eos_token_ids:
                return "stop", None
            if token_id in request.params.stop_ids:
                return "stop", token_id
        assert request.params.max_tokens is not None, "the door left it open"
        if generated >= request.params.max_tokens:
            return "length", None
        return ("repetition", None) if repeats and may_end else (None, None)
