"""Why a prompt was not found whole in the cache, in its owner's own text.

It is found out when somebody asks: decoding the prompt shows the place, and rendering the chat once
more, with marks, shows in which message it lies.
"""

from __future__ import annotations

import re
from typing import cast

import msgspec

from octavo.core.miss import Miss
from octavo.engine.history import Record
from octavo.serve.openai.wire import CacheReport
from octavo.text.detokenizer import Detokenizer
from octavo.text.tokenizer import Tokenizer

SHOWN = 40  # characters of text on each side of the place
WORTH_MOVING = 32  # tokens behind the place; fewer are computed in no time
_CHANGES = re.compile(
    r"\d|\b(mon|tues|wednes|thurs|fri|satur|sun)day\b"
    r"|\b(january|february|march|april|may|june|july|august|september|october|november|december)\b",
    re.IGNORECASE,
)
_ADVICE = {
    "evicted": "it was in the cache and had to make room: a larger --kv-memory keeps it longer",
    "state": "a recurrent state is kept at some places only: a smaller --state-interval keeps more",
    "salt": "the same text came before with another cache_salt: only equal salts share",
    "disabled": "the server runs with --no-prefix-caching",
}


def explain(tokenizer: Tokenizer, record: Record, request_id: str) -> CacheReport:
    """`request_id` as the owner knows it."""
    hit = record.num_cached_tokens
    report = CacheReport(
        request_id=request_id,
        prompt_tokens=len(record.prompt),
        hit_tokens=hit,
        reason=cast(Miss | None, record.miss),
    )
    if report.reason is None:
        return report
    before, after = _split(tokenizer, record, hit)
    segment = _segment(record, before, after)
    advice = _ADVICE.get(report.reason)
    early = segment in ("system", "messages[0]") and len(record.prompt) - hit >= WORTH_MOVING
    if report.reason == "diverged" and early and _changes(before, after):
        advice = "this looks like a date, a time or a number: put what changes behind what stays"
    return msgspec.structs.replace(
        report,
        missed_at=hit,
        segment=segment,
        before=before[-SHOWN:],
        after=after[:SHOWN],
        advice=advice,
    )


def in_a_line(report: CacheReport) -> str:
    """For a log, which never shows a prompt's text."""
    found = f"{report.hit_tokens} of {report.prompt_tokens} prompt tokens were cached"
    if report.reason is None:
        return f"{report.request_id}: {found}"
    return (
        f"{report.request_id}: {found}; {report.reason} at token {report.missed_at}, in "
        f"{report.segment}"
    )


def _split(tokenizer: Tokenizer, record: Record, place: int) -> tuple[str, str]:
    """The prompt's text before and after its first `place` tokens; a character that they leave
    unfinished comes after."""
    detokenizer = Detokenizer(tokenizer, [], skip_special_tokens=False)
    before = detokenizer.push(record.prompt[:place])
    return before, detokenizer.push(record.prompt[place:]) + detokenizer.finish()


def _segment(record: Record, before: str, after: str) -> str:
    """Name of the piece of the outline that the place between `before` and `after` lies in.

    Spaces are left out of the search, as some tokenizers move them. Where the prompt shows a piece
    otherwise than the outline (a template may write the time) its length is as good as known.
    """
    text, place = _dense(before + after), len(_dense(before))
    name, begin, done = "prompt", 0, 0
    for candidate, piece in record.outline() if record.outline else []:
        dense = _dense(piece)
        at = text.find(dense, done)
        if at >= 0:
            begin, done = at, at + len(dense)
        if begin > place and name != "prompt":
            break
        name, begin = candidate, begin + len(dense)
    return name


def _dense(text: str) -> str:
    return "".join(text.split())


def _changes(before: str, after: str) -> bool:
    """Whether the words at the place look like what is another at every request."""
    left = re.search(r"\S*$", before[-SHOWN:])
    right = re.match(r"\s*\S*", after[:SHOWN])
    assert left and right, "both patterns match the empty text"
    return _CHANGES.search(left[0] + right[0]) is not None
