"""What becomes of what was drawn: tokens, forks, beams, ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from octavo.base.output import Delta, Structured
from octavo.base.plan import Sampled, Told
from octavo.core.beam_search import BeamSearch
from octavo.core.kv_manager import KVManager
from octavo.core.roster import Roster
from octavo.core.sequence import RequestState, Sequence


def take_told(roster: Roster, told: Iterable[Told]) -> Iterator[Delta]:
    """Pass on what a step told of prompts."""
    for part in told:
        sequence = roster.live.get(part.sequence_id)
        if sequence is not None and part.error is not None:
            yield from roster.end(sequence, "error", part.error)
        elif sequence is not None:
            state = sequence.state
            assert state.tell_from == part.start, (state.tell_from, part.start)
            state.tell_from += len(part.logprobs)
            yield Delta(
                request_id=state.request.request_id,
                token_ids=[],
                num_cached_tokens=state.prompt_hit or 0,
                miss=state.miss,
                prompt_logprobs=part.logprobs,
            )


def take_all(roster: Roster, manager: KVManager, rows: Iterable[Sampled]) -> list[Delta]:
    """Take in a step's draws; sequences aborted or preempted meanwhile are passed over."""
    deltas: list[Delta] = []
    for drawn in rows:
        sequence = roster.live.get(drawn.sequence_id)
        if sequence is None:
            continue
        if drawn.child != sequence.child:
            sequence = roster.fork(sequence, drawn.child)
            expected = 1
        else:
            expected = sequence.under_way.pop(0)
        if sequence.state.search is not None:
            epoch = manager.cache.epoch
            deltas += _search(roster, sequence, sequence.state.search, drawn, epoch)
        else:
            deltas += _take(roster, manager, sequence, drawn, expected)
    return deltas


def _take(
    roster: Roster, manager: KVManager, sequence: Sequence, drawn: Sampled, expected: int
) -> list[Delta]:
    if drawn.error is not None:
        return list(roster.end(sequence, "error", drawn.error))
    reason = stop = None
    taken = 0
    if drawn.closed_at is not None and sequence.closed_at is None:
        sequence.closed_at = sequence.num_generated + drawn.closed_at
    while taken < len(drawn.token_ids) and reason is None:
        reason, stop = sequence.append(drawn.token_ids[taken])
        taken += 1
    if reason == "stop" and stop is None and sequence.closed_at is not None:
        reason = "length"  # it would have gone on
    if sequence.tables and (expected > 1 or sequence.under_way):
        _advance(manager, sequence, ended=reason is not None, drafted=expected > 1)
    if reason is not None:
        roster.finish(sequence)
    delta = Delta(
        request_id=sequence.request.request_id,
        index=sequence.child,
        token_ids=drawn.token_ids[:taken],
        logprobs=drawn.logprobs and drawn.logprobs[:taken],
        finish_reason=reason,
        stop_reason=stop,
        num_cached_tokens=sequence.state.prompt_hit or 0,
        miss=sequence.state.miss,
        epoch=manager.cache.epoch,
        num_drafts=drawn.drafts,
        num_accepted=min(drawn.accepted, taken),
        structured=_structured(sequence, drawn) if reason is not None else None,
    )
    return [delta]


def _structured(sequence: Sequence, drawn: Sampled) -> Structured | None:
    if drawn.is_whole is None:
        return None
    return Structured(drawn.is_whole, sequence.closed_at)


def _advance(manager: KVManager, sequence: Sequence, ended: bool, drafted: bool) -> None:
    """A sequence's row has drawn: drafts that were accepted are computed, and the newest token is
    if a row under way has it."""
    follows = bool(sequence.under_way) and not ended
    sequence.num_computed = sequence.num_known if follows else sequence.num_known - 1
    if drafted or follows:
        manager.publish(sequence)
    if drafted:
        manager.trim(sequence)


def _search(
    roster: Roster, sequence: Sequence, search: BeamSearch, drawn: Sampled, epoch: str
) -> list[Delta]:
    """A beam's likeliest tokens; when all beams have told theirs, the next beams: each is a fork of
    the one that it continues."""
    state = sequence.state
    if drawn.error is not None or drawn.logprobs is None:
        return list(roster.end(sequence, "error", drawn.error or "the step told no logprobs"))
    sequence.likeliest = drawn.logprobs[0]
    old = [state.alive[i] for i in range(len(search.beams))]
    told = [beam.likeliest for beam in old if beam.likeliest is not None]
    if len(told) < len(old):
        return []
    parents = search.advance(told)
    for child, parent in enumerate(parents if not search.done else ()):
        beam = roster.fork(old[parent], child)
        beam.token_ids.append(search.beams[child].token_ids[-1])
    for i, beam in enumerate(old):  # what only passes on to others is found in them
        roster.finish(beam, written=i in search.stopped)
    return _hypotheses(state, search, epoch) if search.done else []


def _hypotheses(state: RequestState, search: BeamSearch, epoch: str) -> list[Delta]:
    shown = state.request.params.logprobs is not None
    return [
        Delta(
            request_id=state.request.request_id,
            index=index,
            token_ids=found.beam.token_ids,
            logprobs=found.beam.logprobs if shown else None,
            finish_reason=search.finish_reason(found),
            num_cached_tokens=state.prompt_hit or 0,
            miss=state.miss,
            score=found.beam.total,
            epoch=epoch,
        )
        for index, found in enumerate(search.hypotheses)
    ]
