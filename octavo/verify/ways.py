"""Ways in which requests go through an engine: each gives the answers they got."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing

import msgspec

from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.engine.client import AsyncEngine
from octavo.verify.streams import Stream, Streams, collect, feed
from octavo.verify.subject import Subject

Way = Callable[[Subject, Sequence[Request]], Streams]

GREEDY = SamplingParams(temperature=0.0, max_tokens=1, seed=0)


class NotHere(Exception):
    """What a cell is about does not happen on this model; the message says why."""


def alone(subject: Subject, requests: Sequence[Request]) -> Streams:
    """One after another, each with an empty cache."""
    streams: Streams = {}
    for request in requests:
        subject.forget()
        streams |= collect(subject.engine.generate([request]))
    return streams


def together(subject: Subject, requests: Sequence[Request]) -> Streams:
    subject.forget()
    return collect(subject.engine.generate(requests))


def warm(subject: Subject, requests: Sequence[Request]) -> Streams:
    """A second time: the cache holds all prompts."""
    together(subject, requests)
    before = subject.hit_tokens
    streams = collect(subject.engine.generate(requests))
    if subject.hit_tokens == before:
        raise NotHere("the prefix cache holds nothing of these prompts")
    return streams


def drafted(subject: Subject, requests: Sequence[Request]) -> Streams:
    """All at once, with guesses."""
    before = subject.drafted_tokens
    streams = together(subject, requests)
    if subject.drafted_tokens == before:
        raise NotHere("nothing was guessed")
    return streams


def partial_hit(subject: Subject, requests: Sequence[Request]) -> Streams:
    """The cache holds prompts that part from these in the middle of a block, or end there."""
    block = subject.settings.cache.block_size
    subject.forget()
    collect(
        subject.engine.generate([r for n, q in enumerate(requests) for r in _begun(n, q, block)])
    )
    cached = []
    streams: Streams = {}
    with closing(subject.engine.generate(requests)) as deltas:
        for delta in deltas:
            cached.append(delta.num_cached_tokens)
            feed(streams, delta)
    if not any(count % block for count in cached):
        raise NotHere("no hit ends within a block")
    return streams


def preempted(subject: Subject, requests: Sequence[Request]) -> Streams:
    """Twice, when a third and two thirds of all tokens are there."""
    subject.forget()
    expected = sum(r.params.n * (r.params.max_tokens or 0) for r in requests)
    pauses = [expected // 3, 2 * expected // 3]
    streams: Streams = {}
    count = 0
    with closing(subject.engine.generate(requests)) as deltas:
        for delta in deltas:
            feed(streams, delta)
            count += len(delta.token_ids)
            if pauses and count >= pauses[0]:
                del pauses[0]
                subject.engine.call(lambda engine: engine.suspend())
    if pauses:
        raise NotHere("the answers ended too early")
    return streams


def single(subject: Subject, requests: Sequence[Request]) -> Streams:
    """One answer of those that have several."""
    several = [r for r in requests if r.params.n > 1]
    return together(subject, [_with(r, n=1) for r in several])


def forked(subject: Subject, requests: Sequence[Request]) -> Streams:
    """Gone on from the middle of answers that still run. Only where a token of the answer counts
    as one of the prompt does."""
    subject.forget()
    parents = [r for r in requests if _may_fork(r.params)]
    middle = (parents[0].params.max_tokens or 0) // 2
    begun: Streams = {}
    with closing(subject.engine.generate([_renamed(r, "parent") for r in parents])) as deltas:
        for delta in deltas:
            feed(begun, delta)
            if [len(s.positions) >= middle for s in begun.values()].count(True) == len(parents):
                break
        kept = {key: Stream(stream.positions[:middle]) for key, stream in begun.items()}
        streams = collect(subject.engine.generate([_fork(r, kept[_number(r), 0]) for r in parents]))
    for key, stream in streams.items():
        stream.positions[:0] = kept[key].positions
    return streams


def in_process(subject: Subject, requests: Sequence[Request]) -> Streams:
    """All at once, by an engine process."""
    subject.close()
    return asyncio.run(_by_process(subject, requests))


async def _by_process(subject: Subject, requests: Sequence[Request]) -> Streams:
    engine = await AsyncEngine.start(subject.settings, subject.files)
    streams: Streams = {}

    async def read(request: Request) -> None:
        async for delta in engine.generate(request):
            feed(streams, delta)

    try:
        await asyncio.gather(*map(read, requests))
    finally:
        await engine.close()
    return streams


def _begun(number: int, request: Request, block_size: int) -> list[Request]:
    """A request whose prompt is the beginning of this one's, every second with another token
    behind it; none where the prompt is too short."""
    prompt = request.prompt_token_ids
    count = len(prompt) * 3 // 4
    count -= count % block_size == 0
    if count < 1:
        return []
    other = int(prompt[count] == 0)  # 0 or 1
    shared = prompt[:count] if number % 2 else [*prompt[:count], other]
    return [Request(request_id=f"begun-{number}", prompt_token_ids=shared, params=GREEDY)]


def _may_fork(params: SamplingParams) -> bool:
    of_answers = params.presence_penalty or params.frequency_penalty or params.min_tokens
    of_prompts = params.prompt_logprobs is not None
    return params.n == 1 and not (of_answers or of_prompts) and (params.max_tokens or 0) > 1


def _fork(request: Request, kept: Stream) -> Request:
    left = (request.params.max_tokens or 0) - len(kept.positions)
    return msgspec.structs.replace(
        _with(request, max_tokens=left),
        prompt_token_ids=[*request.prompt_token_ids, *kept.tokens],
        fork_of=_renamed(request, "parent").request_id,
    )


def _with(request: Request, **changes: int) -> Request:
    params = msgspec.structs.replace(request.params, **changes)
    return msgspec.structs.replace(request, params=params)


def _renamed(request: Request, name: str) -> Request:
    return msgspec.structs.replace(request, request_id=f"{name}-{_number(request)}")


def _number(request: Request) -> int:
    return int(request.request_id.rpartition("-")[2])
