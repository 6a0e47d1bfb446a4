"""What requests have become: those that run, and the last ones of each owner that have finished.

Whoever knows an id and is not its owner learns nothing, not even that it exists.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict

from octavo.base.errors import NotFoundError, RequestError
from octavo.base.request import Request
from octavo.text.assembler import TextDelta

KEPT = 256  # finished requests of each owner
OWNERS = 1024  # whose finished requests are kept


class Record:
    """One request and the tokens that each of its sequences has got so far."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.generated = [array("i") for _ in range(request.params.n)]
        self.num_cached_tokens = 0
        self.miss: str | None = None

    def add(self, piece: TextDelta) -> None:
        self.generated[piece.index].extend(piece.token_ids)
        self.num_cached_tokens = max(self.num_cached_tokens, piece.num_cached_tokens)
        self.miss = piece.miss

    def tokens(self, child: int, upto: int | None) -> list[int]:
        """Prompt and answer of one sequence, or the first `upto` tokens of them.

        Raises:
            RequestError: there is no such sequence, or it has not so many tokens.
        """
        if not 0 <= child < len(self.generated):
            raise RequestError(
                f"index must be between 0 and {len(self.generated) - 1}, got {child}", "index"
            )
        tokens = [*self.request.prompt_token_ids, *self.generated[child]]
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

    def begin(self, request: Request) -> Record:
        record = self._running[request.request_id] = Record(request)
        return record

    def end(self, request_id: str) -> None:
        """It has finished, or was aborted."""
        record = self._running.pop(request_id)
        owner = record.request.owner
        mine = self._finished.setdefault(owner, OrderedDict())
        self._finished.move_to_end(owner)
        mine.pop(request_id, None)
        mine[request_id] = record
        if len(mine) > KEPT:
            mine.popitem(last=False)
        if len(self._finished) > OWNERS:
            self._finished.popitem(last=False)

    def get(self, owner: str, request_id: str) -> Record:
        """Raises:
        NotFoundError: it is not among those that run or the last `KEPT` of its owner.
        """
        record = self._running.get(request_id)
        if record is None or record.request.owner != owner:
            record = self._finished.get(owner, OrderedDict()).get(request_id)
        if record is None:
            raise NotFoundError(
                f"request {request_id[:100]!r} does not run and is not among the last {KEPT}",
                "request_id",
            )
        return record
