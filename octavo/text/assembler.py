"""What the scheduler added to a request (`Delta`) -> what its client reads (`TextDelta`).

The one way from token ids to text, streamed or not: whoever answers at once joins the pieces.
`Interval` joins those of a stream that wants fewer.
"""

from __future__ import annotations

import msgspec

from octavo.base.output import Delta, FinishReason, Structured
from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request
from octavo.text.detokenizer import Detokenizer
from octavo.text.stop_strings import StopStrings
from octavo.text.tokenizer import Tokenizer


class TextDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A `Delta` with its text. Text may come later than its tokens: it is held back while a
    character is unfinished or a stop string may have begun."""

    text: str
    index: int = 0  # of the sequence in its request
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None  # as many as token_ids
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int = 0
    miss: str | None = None
    score: float | None = None
    epoch: str = ""
    error: str | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    num_drafts: int = 0
    num_accepted: int = 0  # of token_ids
    structured: Structured | None = None
    cut: bool = False  # a stop string ended it, the engine still runs: abort the request there
    # Where the text of each token ends, in characters from the start of `text`; behind its end
    # where text is held back. None: there is no text.
    ends: list[int] | None = None


class Assembler:
    """Detokenizes one sequence and ends it at a stop string."""

    def __init__(self, request: Request, tokenizer: Tokenizer | None) -> None:
        """Without a tokenizer, or with `detokenize` off, token ids pass and there is no text."""
        params = request.params
        self._min_tokens = params.min_tokens
        self._shows_stop = params.include_stop_str_in_output
        self._stops = StopStrings(params.stop_strings, self._shows_stop)
        self._eos_ids = request.eos_token_ids
        self._num_tokens = 0
        self._spelled = 0  # characters that the tokens so far make
        self._given = 0  # of those, in earlier pieces
        self._finished = False
        self._detokenizer: Detokenizer | None = None
        if tokenizer is not None and params.detokenize:
            self._detokenizer = Detokenizer(
                tokenizer, request.prompt_token_ids, params.skip_special_tokens
            )

    def feed(self, delta: Delta) -> TextDelta:
        """Take the next delta. None may follow one that was answered with a finish reason.

        A token that ended the request (EOS or a stop token id) is kept but has no text, unless
        `include_stop_str_in_output`. A stop string counts if the token that completes it comes
        after the first `min_tokens` ones; later tokens are dropped, from this delta too.
        """
        assert not self._finished, f"request {delta.request_id} has already finished"
        self._finished = delta.finish_reason is not None
        if self._detokenizer is None:
            return _text_delta(delta, "")
        pieces, ends = [], []
        for count, id in enumerate(self._shown(delta), 1):
            pieces.append(self._push(self._detokenizer, id))
            ends.append(self._spelled - self._given)
            if self._stops.hit is not None:
                return self._cut(delta, "".join(pieces), ends, count)
        if self._finished:
            pieces += self._stops.flush(), self._detokenizer.finish()
        text = "".join(pieces)
        ends += [self._spelled - self._given] * (len(delta.token_ids) - len(ends))
        self._given += len(text)
        return _text_delta(delta, text, ends)

    def _shown(self, delta: Delta) -> list[int]:
        """The tokens that have text. An answer that was closed in time may end in EOS too, though
        its finish reason is "length"."""
        ids, reason = delta.token_ids, delta.finish_reason
        has_end = reason == "stop" or (reason == "length" and ids and ids[-1] in self._eos_ids)
        return ids[:-1] if has_end and not self._shows_stop else ids

    def _push(self, detokenizer: Detokenizer, id: int) -> str:
        """One token at a time, so that it is known which one completes a stop string."""
        text = detokenizer.push((id,))
        self._num_tokens += 1
        self._spelled += len(text)
        return self._stops.push(text, armed=self._num_tokens > self._min_tokens)

    def _cut(self, delta: Delta, text: str, ends: list[int], count: int) -> TextDelta:
        self._finished = True
        return msgspec.structs.replace(
            _text_delta(delta, text, ends),
            token_ids=delta.token_ids[:count],
            num_accepted=min(delta.num_accepted, count),
            logprobs=None if delta.logprobs is None else delta.logprobs[:count],
            finish_reason="stop",
            stop_reason=self._stops.hit,
            structured=None,
            cut=delta.finish_reason is None,
        )


class Interval:
    """Joins pieces until they hold as many tokens as a request's `stream_interval`; a last piece
    may hold fewer. What tells of the prompt alone passes at once."""

    def __init__(self, request: Request) -> None:
        self._least = request.params.stream_interval
        self._held: dict[int, TextDelta] = {}  # by sequence

    def take(self, piece: TextDelta) -> TextDelta | None:
        """None while it is held."""
        if piece.prompt_logprobs is not None and not piece.token_ids and not piece.finish_reason:
            return piece
        held = self._held.pop(piece.index, None)
        whole = piece if held is None else _joined(held, piece)
        if whole.finish_reason is not None or len(whole.token_ids) >= self._least:
            return whole
        self._held[piece.index] = whole
        return None


def _joined(first: TextDelta, second: TextDelta) -> TextDelta:
    return msgspec.structs.replace(
        second,
        text=first.text + second.text,
        token_ids=first.token_ids + second.token_ids,
        logprobs=[*(first.logprobs or ()), *(second.logprobs or ())] or None,
        num_drafts=first.num_drafts + second.num_drafts,
        num_accepted=first.num_accepted + second.num_accepted,
        ends=_joined_ends(first, second),
    )


def _joined_ends(first: TextDelta, second: TextDelta) -> list[int] | None:
    if first.ends is None or second.ends is None:
        return None
    begin = len(first.text)
    return [*first.ends, *(begin + end for end in second.ends)]


def _text_delta(delta: Delta, text: str, ends: list[int] | None = None) -> TextDelta:
    return TextDelta(
        text=text,
        index=delta.index,
        token_ids=delta.token_ids,
        logprobs=delta.logprobs,
        finish_reason=delta.finish_reason,
        stop_reason=delta.stop_reason,
        num_cached_tokens=delta.num_cached_tokens,
        miss=delta.miss,
        score=delta.score,
        epoch=delta.epoch,
        error=delta.error,
        prompt_logprobs=delta.prompt_logprobs,
        num_drafts=delta.num_drafts,
        num_accepted=min(delta.num_accepted, len(delta.token_ids)),
        structured=delta.structured,
        ends=ends,
    )
