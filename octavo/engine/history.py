"""What requests have become: those that run, and the last ones of each owner that have finished.

Whoever knows an id and is not its owner learns nothing, not even that it exists.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from octavo.base.errors import NotFoundError, RequestError
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.text.assembler import TextDelta

KEPT = 256  # finished requests of each owner
OWNERS = 1024  # whose finished requests are kept
KEPT_TOKENS = 2**25  # of all finished requests together

# What a prompt was made from: names, and the pieces of text in order of the prompt.
Outline = Callable[[], list[tuple[str, str]]]


class Record:
    """One request and the tokens that each of its sequences has got so far."""

    def __init__(self, request: Request, outline: Outline | None = None) -> None:
        """`outline` is for explanations, and is called only then."""
        self.prompt = array("i", request.prompt_token_ids)
        self.request = msgspec.structs.replace(request, prompt_token_ids=[])  # they are `prompt`
        self.generated = [array("i") for _ in range(request.params.n)]
        self.num_cached_tokens = 0
        self.miss: str | None = None
        self.outline = outline
        self.has_begun = False  # something came of it: its prompt is computed

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + sum(map(len, self.generated))

    def params_of_fork(self, **changes: Any) -> SamplingParams:
        """What a fork takes over: all but the seed, what is told of the prompt, and the shape of
        the answer, which begins anew.

        Raises:
            RequestError: a change is outside its range.
        """
        fresh: dict[str, Any] = {"n": 1, "seed": None}
        fresh |= {"prompt_logprobs": None, "prompt_logprob_start": 0}
        fresh |= {"structured_outputs": None, "thinking": None}
        if "bad_words" in changes:
            fresh["bad_word_ids"] = None
        return msgspec.structs.replace(self.request.params, **(fresh | changes))

    def add(self, piece: TextDelta) -> None:
        self.has_begun |= bool(piece.token_ids or piece.prompt_logprobs)
        self.generated[piece.index].extend(piece.token_ids)
        self.num_cached_tokens = max(self.num_cached_tokens, piece.num_cached_tokens)
        self.miss = piece.miss or self.miss

    def tokens(self, child: int, upto: int | None) -> list[int]:
        """Prompt and answer of one sequence, or the first `upto` tokens of them.

        Raises:
            RequestError: there is no such sequence, or it has not so many tokens.
        """
        if not 0 <= child < len(self.generated):
            raise RequestError(
                f"index must be between 0 and {len(self.generated) - 1}, got {child}", "index"
            )
        tokens = [*self.prompt, *self.generated[child]]
        if upto is not None and not 1 <= upto <= len(tokens):
            raise RequestError(
                f"at_token must be between 1 and {len(tokens)}, the tokens of prompt and answer so "
                f"far; got {upto}",
                "at_token",
            )
        return tokens[:upto]


class History:
    """Records by owner and id."""

    def __init__(self) -> None:
        self._running: dict[str, Record] = {}
        self._finished: OrderedDict[str, OrderedDict[str, Record]] = OrderedDict()  # by owner
        self._tokens = 0  # of all that have finished
        self._lock = threading.Lock()

    def begin(self, request: Request, outline: Outline | None = None) -> Record:
        record = self._running[request.request_id] = Record(request, outline)
        return record

    def end(self, request_id: str) -> None:
        """It has finished, or was aborted. One that came to nothing is forgotten."""
        record = self._running.pop(request_id)
        if not record.has_begun:
            return
        owner = record.request.owner
        with self._lock:
            mine = self._finished.setdefault(owner, OrderedDict())
            self._finished.move_to_end(owner)
            if request_id in mine:
                self._tokens -= mine.pop(request_id).num_tokens
            mine[request_id] = record
            self._tokens += record.num_tokens
            if len(mine) > KEPT:
                self._drop_oldest(owner)
            while len(self._finished) > OWNERS or self._tokens > KEPT_TOKENS:
                self._drop_oldest(next(iter(self._finished)))

    def find(self, owner: str, request_id: str) -> Record | None:
        """One that runs, or is among the last `KEPT` of its owner."""
        record = self._running.get(request_id)
        if record is not None and record.request.owner == owner:
            return record
        return self._finished.get(owner, OrderedDict()).get(request_id)

    def get(self, owner: str, request_id: str) -> Record:
        """Raises:
        NotFoundError: there is none to be found.
        """
        record = self.find(owner, request_id)
        if record is None:
            raise NotFoundError(
                f"request {request_id[:100]!r} does not run and is not among the last {KEPT}",
                "request_id",
            )
        return record

    def _drop_oldest(self, owner: str) -> None:
        mine = self._finished[owner]
        _, record = mine.popitem(last=False)
        self._tokens -= record.num_tokens
        if not mine:
            del self._finished[owner]
