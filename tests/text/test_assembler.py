"""Every way of cutting a scripted stream into deltas gives what one token at a time gives."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise, product
from operator import add

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from octavo.base.output import Delta
from octavo.base.plan import TokenLogprobs
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.text.assembler import Assembler, Interval, TextDelta
from octavo.text.tokenizer import Tokenizer

TOKENS = ["a", "ab", "b", "c", "ð", "Ł", "ĺ", "Ģ", "<eos>"]  # ð Ł ĺ Ģ are the bytes of 😀
EOS = TOKENS.index("<eos>")


def make_tokenizer() -> Tokenizer:
    vocab = {token: id for id, token in enumerate(TOKENS)}
    backend = Backend(models.BPE(vocab, []))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    return Tokenizer(backend)


TOKENIZER = make_tokenizer()

STREAMS = [
    (["a", "b", "c", "ab", "c", "<eos>"], "stop", None),
    (["a", "ab", "ab", "a", "c"], "length", None),
    (["c", "ð", "Ł", "ĺ", "Ģ", "b"], "length", None),
    (["a", "b", "ð", "Ł"], "length", None),  # ends inside a character
    (["a", "c", "ab"], "stop", TOKENS.index("ab")),  # a stop token id that has text
]
STOPS = [
    (),
    ("b",),
    ("abc", "ba"),
    ("bc", "abc"),
    ("aab", "ca"),
    ("😀",),
    ("c😀b", "\ufffd"),
    ("aba",),
]


def params(stop=(), include=False, min_tokens=0, **options) -> SamplingParams:
    return SamplingParams(
        stop=stop,
        include_stop_str_in_output=include,
        min_tokens=min_tokens,
        max_tokens=64,
        seed=0,
        **options,
    )


def request(**options) -> Request:
    return Request(request_id="r", prompt_token_ids=[0], params=params(**options))


def oracle(ids, finish, reason, stop, include, min_tokens):
    """(text, token ids, finish reason, stop reason) by searching the whole text after each token.

    Characters: those of the tokens so far that are complete; the end shows what is not.
    """
    shown_ids = ids[:-1] if finish == "stop" and not include else ids
    unsearched = 0
    for count in range(1, len(shown_ids) + 1):
        spelled = b"".join(TOKENIZER.token_bytes(id) for id in shown_ids[:count] if id != EOS)
        text = spelled.decode(errors="ignore")
        for end in range(unsearched + 1, len(text) + 1) if count > min_tokens else ():
            found = [one for one in stop if text[:end].endswith(one)]
            if found:
                hit = max(found, key=len)
                kept = text[:end] if include else text[: end - len(hit)]
                return kept, ids[:count], "stop", hit
        unsearched = len(text)
    return TOKENIZER.decode(shown_ids), ids, finish, reason


def chunkings(length):
    """Every way to cut a stream of `length` tokens."""
    for cuts in product((False, True), repeat=length - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), length]
        yield list(pairwise(edges))


def deltas(ids, finish, reason, edges):
    for start, end in edges:
        last = end == len(ids)
        entries = [TokenLogprobs(ids[i], -float(i), 1, []) for i in range(start, end)]
        yield Delta(
            request_id="r",
            token_ids=ids[start:end],
            logprobs=entries,
            finish_reason=finish if last else None,
            stop_reason=reason if last else None,
            num_cached_tokens=3,
        )


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: "".join(stream[0]))
def test_every_chunking_equals_one_token_at_a_time(stream):
    tokens, finish, reason = stream
    ids = [TOKENS.index(token) for token in tokens]
    cases = product(STOPS, (False, True), range(len(ids) + 1), chunkings(len(ids)))
    for stop, include, min_tokens, edges in cases:
        assembler = Assembler(request(stop=stop, include=include, min_tokens=min_tokens), TOKENIZER)
        out = []
        for delta in deltas(ids, finish, reason, edges):
            out.append(assembler.feed(delta))
            if out[-1].finish_reason is not None:
                break
        text, kept, finished, why = oracle(ids, finish, reason, stop, include, min_tokens)
        case = (stop, include, min_tokens, edges)
        assert "".join(part.text for part in out) == text, case
        assert [id for part in out for id in part.token_ids] == kept, case
        entries = [entry for part in out for entry in part.logprobs]
        assert [entry.token_id for entry in entries] == kept, case
        assert [-entry.logprob for entry in entries] == list(range(len(kept))), case
        assert (out[-1].finish_reason, out[-1].stop_reason) == (finished, why), case
        ended_by_engine = edges[len(out) - 1][1] == len(ids)
        assert out[-1].cut == (not ended_by_engine), case
        assert not any(part.cut for part in out[:-1]), case


def test_ids_only_without_text():
    delta = Delta(request_id="r", token_ids=[0, 1], finish_reason="length", num_cached_tokens=7)
    for assembler in (
        Assembler(request(detokenize=False), TOKENIZER),
        Assembler(request(), None),
    ):
        out = assembler.feed(delta)
        assert (out.text, out.token_ids, out.finish_reason) == ("", [0, 1], "length")
        assert (out.num_cached_tokens, out.logprobs, out.cut) == (7, None, False)


@pytest.mark.parametrize(("included", "text"), [(False, "a"), (True, "a<eos>")])
def test_eos_of_an_answer_that_was_closed_in_time_is_no_text(included, text):
    asked = Request(
        request_id="r",
        prompt_token_ids=[0],
        params=params(include=included, skip_special_tokens=False),
        eos_token_ids=(EOS,),
    )
    delta = Delta(request_id="r", token_ids=[0, EOS], finish_reason="length")
    assert Assembler(asked, TOKENIZER).feed(delta).text == text


def test_eos_is_shown_only_if_asked():
    ids = [TOKENS.index("a"), EOS]
    delta = Delta(request_id="r", token_ids=ids, finish_reason="stop")
    hidden = Assembler(request(skip_special_tokens=False), TOKENIZER).feed(delta)
    assert (hidden.text, hidden.token_ids) == ("a", ids)
    shown = Assembler(request(include=True, skip_special_tokens=False), TOKENIZER).feed(delta)
    assert shown.text == "a<eos>"


def test_errors_and_aborts_pass():
    assembler = Assembler(request(stop=("abc",)), TOKENIZER)
    assert assembler.feed(Delta(request_id="r", token_ids=[1])).text == ""
    out = assembler.feed(Delta(request_id="r", token_ids=[], finish_reason="error", error="gone"))
    assert (out.text, out.finish_reason, out.error) == ("ab", "error", "gone")


def test_nothing_follows_the_end():
    assembler = Assembler(request(stop=("a",)), TOKENIZER)
    assert assembler.feed(Delta(request_id="r", token_ids=[0, 0])).cut
    with pytest.raises(AssertionError, match="already finished"):
        assembler.feed(Delta(request_id="r", token_ids=[0]))


@pytest.mark.parametrize("least", [1, 2, 3, 7])
def test_pieces_are_joined_until_they_are_long_enough(least):
    """Of two sequences that take turns; their pieces joined are what they are without."""
    interval = Interval(request(n=2, stream_interval=least))
    given = [
        TextDelta(
            text=f"{i}" * i,
            index=i % 2,
            token_ids=list(range(i)),
            logprobs=[TokenLogprobs(token, -1.0, 1, []) for token in range(i)],
            finish_reason="stop" if i >= 8 else None,
            num_drafts=i,
            num_accepted=1,
        )
        for i in (1, 2, 1, 2, 3, 4, 1, 0, 9, 8)
        for _ in range(1 + (i < 8))
    ]
    taken = [piece for piece in map(interval.take, given) if piece is not None]
    for index in range(2):
        before, after = ([p for p in pieces if p.index == index] for pieces in (given, taken))
        assert all(len(piece.token_ids) >= least for piece in after[:-1])
        assert [p.finish_reason for p in after] == [None] * (len(after) - 1) + ["stop"]
        for field in ("text", "token_ids", "logprobs", "num_drafts", "num_accepted"):
            assert _total(before, field) == _total(after, field)


def _total(pieces, field):
    values = (getattr(piece, field) for piece in pieces)
    return reduce(add, (value for value in values if value is not None))


def test_what_is_told_of_a_prompt_is_not_held_back():
    interval = Interval(request(stream_interval=5))
    told = TextDelta(text="", token_ids=[], prompt_logprobs=[TokenLogprobs(1, -1.0, 1, [])])
    assert interval.take(told) is told
    assert interval.take(TextDelta(text="a", token_ids=[0])) is None


def test_drafts_behind_a_stop_were_not_accepted():
    delta = Delta(request_id="r", token_ids=[0, 0, 2, 0], num_drafts=5, num_accepted=3)
    assert Assembler(request(), TOKENIZER).feed(delta).num_accepted == 3
    assert Assembler(request(stop=("a",)), TOKENIZER).feed(delta).num_accepted == 1


@pytest.mark.parametrize("spaces", [True, False])
def test_nothing_is_put_between_special_tokens(spaces):
    """Texts are their tokens' bytes in a row, so there are no spaces to leave out."""
    asked = request(include=True, skip_special_tokens=False, spaces_between_special_tokens=spaces)
    delta = Delta(request_id="r", token_ids=[0, EOS, EOS, 0, EOS], finish_reason="stop")
    assert Assembler(asked, TOKENIZER).feed(delta).text == "a<eos><eos>a<eos>"
