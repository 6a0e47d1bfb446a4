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

    positions: list[TokenLogprobs] = field(default_factory=list)  # of generated tokens
    prompt: list[TokenLogprobs] = field(default_factory=list)  # from the second token on, if asked
    end: tuple[str | None, int | str | None] = (None, None)  # finish and stop reason

    @property
    def tokens(self) -> list[int]:
        return [position.token_id for position in self.positions]

    @property
    def num_logprobs(self) -> int:
        return sum(1 + len(position.top) for position in (*self.prompt, *self.positions))

    def parts_from(self, other: Stream, prompt_len: int) -> int | None:
        """The first position at which a bit differs; None where all is the same."""
        at = _parting(self.prompt, other.prompt)
        if at is not None:
            return 1 + at
        at = _parting(self.positions, other.positions)
        if at is None and self.end != other.end:
            at = len(self.positions)
        return None if at is None else prompt_len + at

    def at(self, position: int, prompt_len: int) -> TokenLogprobs | None:
        """None where there is no token, or nothing was asked about it."""
        ofs = self.positions if position >= prompt_len else self.prompt
        n = position - (prompt_len if position >= prompt_len else 1)
        return ofs[n] if n < len(ofs) else None


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
    stream.prompt += delta.prompt_logprobs or ()
    stream.end = (delta.finish_reason, delta.stop_reason)


def differences(
    found: Streams, expected: Mapping[Key, Stream], requests: Sequence[Request]
) -> list[Difference]:
    """In order of requests."""
    parted = []
    for key in sorted(found):
        mine, reference, length = found[key], expected[key], len(requests[key[0]].prompt_token_ids)
        at = mine.parts_from(reference, length)
        if at is not None:
            parted.append(Difference(key, at, reference.at(at, length), mine.at(at, length)))
    return parted


def extent(found: Streams, expected: Mapping[Key, Stream]) -> str:
    """How far answers are apart: whether in tokens, and in the logprobs of those before that."""
    others, largest = 0, 0.0
    for key, stream in found.items():
        reference = expected[key]
        others += stream.tokens != reference.tokens
        for mine, its in zip(stream.positions, reference.positions, strict=False):
            if mine.token_id != its.token_id:
                break
            largest = max(largest, abs(mine.logprob - its.logprob))
    tokens = f"other tokens in {others}" if others else "the same tokens"
    return f"{tokens}, logprobs up to {largest:.1e} apart"


def _parting(mine: Sequence[TokenLogprobs], its: Sequence[TokenLogprobs]) -> int | None:
    """By bits: unlike ==, that tells zeros apart, and NaN is itself."""
    pairs = enumerate(zip(mine, its, strict=False))
    shorter = None if len(mine) == len(its) else min(len(mine), len(its))
    return next((n for n, (a, b) in pairs if encode(a) != encode(b)), shorter)
