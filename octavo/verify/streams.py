"""What a request was answered, to the bit, and where two answers part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.msgpack import encode

from octavo.base.errors import EngineError
from octavo.base.output import Delta
from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request

Key = tuple[int, int]  # number of the request, and of its answer


@dataclass
class Stream:
    """One answer."""

    positions: list[TokenLogprobs] = field(default_factory=list)
    end: tuple[str | None, int | str | None] = (None, None)  # finish and stop reason

    @property
    def tokens(self) -> list[int]:
        return [position.token_id for position in self.positions]

    @property
    def num_logprobs(self) -> int:
        return sum(1 + len(position.top) for position in self.positions)

    def parts_from(self, other: Stream) -> int | None:
        """The first generated token at which a bit differs; None where all is the same."""
        for n, (mine, its) in enumerate(zip(self.positions, other.positions, strict=False)):
            if encode(mine) != encode(its):  # unlike ==, tells zeros apart and NaN is itself
                return n
        same = len(self.positions) == len(other.positions) and self.end == other.end
        return None if same else min(len(self.positions), len(other.positions))


Streams = dict[Key, Stream]


@dataclass(frozen=True)
class Difference:
    """Where a stream first parts from the reference's."""

    key: Key
    position: int  # of the token in its sequence, prompt and all
    expected: TokenLogprobs | None  # None: the stream had ended
    found: TokenLogprobs | None

    def __str__(self) -> str:
        (request, child), expected, found = self.key, self.expected, self.found
        who = f"request {request}, answer {child}" if child else f"request {request}"
        if expected is None or found is None:
            what = "one answer ends and the other does not"
        elif expected.token_id != found.token_id:
            what = f"token {found.token_id} in place of {expected.token_id}"
        else:
            what = f"other logprobs ({found.logprob!r} in place of {expected.logprob!r})"
        return f"{who}, position {self.position}: {what}"


def key_of(delta: Delta) -> Key:
    return int(delta.request_id.rpartition("-")[2]), delta.index


def collect(deltas: Iterable[Delta]) -> Streams:
    """Raises EngineError where a request fails."""
    streams: Streams = {}
    for delta in deltas:
        feed(streams, delta)
    return streams


def feed(streams: Streams, delta: Delta) -> None:
    if delta.error is not None:
        raise EngineError(f"{delta.request_id}: {delta.error}")
    stream = streams.setdefault(key_of(delta), Stream())
    stream.positions += delta.logprobs or ()
    stream.end = (delta.finish_reason, delta.stop_reason)


def differences(
    found: Streams, expected: Mapping[Key, Stream], requests: Sequence[Request]
) -> list[Difference]:
    """In order of requests."""
    parted = []
    for key in sorted(found):
        mine, reference = found[key], expected[key]
        at = mine.parts_from(reference)
        if at is not None:
            position = len(requests[key[0]].prompt_token_ids) + at
            parted.append(
                Difference(key, position, _at(reference.positions, at), _at(mine.positions, at))
            )
    return parted


def _at(positions: Sequence[TokenLogprobs], n: int) -> TokenLogprobs | None:
    return positions[n] if n < len(positions) else None
