"""Golden answers of every format say the same however they are cut, with markers as tokens or as
text, and with stop strings in play."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from format_goldens import (
    FORMATS,
    GOLDENS,
    NAMES,
    TOOLS,
    bound,
    expected,
    markers,
    numbered,
    without,
)

from octavo.base.output import Delta
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.base.structured import Marker, Thinking
from octavo.text.assembler import Assembler, Interval, TextDelta
from octavo.text.formats.events import Event, call_id, merged
from octavo.text.formats.output_format import OutputFormat
from octavo.text.tokenizer import Tokenizer


def thinking(state: str) -> Thinking:
    return Thinking(opens=Marker("<think>"), closes=Marker("</think>"), state=state)


def parsed(format: OutputFormat, state: str, deltas: Iterable[TextDelta]) -> list[Event]:
    parser = format.parser(TOOLS, thinking(state), numbered)
    return merged([event for delta in deltas for event in parser.feed(delta)])


def in_pieces(pieces: list[str]) -> Iterable[TextDelta]:
    for index, piece in enumerate(pieces):
        last = index == len(pieces) - 1
        yield TextDelta(text=piece, token_ids=[], finish_reason="stop" if last else None)


def assembled(
    tokenizer: Tokenizer, pieces: list[list[int]], stream_interval: int = 1, **options: object
) -> Iterable[TextDelta]:
    """What clients read of an answer of these tokens, which the budget ends."""
    params = SamplingParams(max_tokens=4096, stream_interval=stream_interval, **options)
    request = Request(request_id="r", prompt_token_ids=[0], params=params)
    assembler, interval = Assembler(request, tokenizer), Interval(request)
    for index, ids in enumerate(pieces):
        reason = "length" if index == len(pieces) - 1 else None
        piece = assembler.feed(Delta(request_id="r", token_ids=ids, finish_reason=reason))
        joined = interval.take(piece)
        if joined is not None:
            yield joined
        if piece.finish_reason:
            return


def cuttings(items: str | list[int], source: random.Random, everywhere: bool = True) -> list[list]:
    """In two at every place, and in many at random ones."""
    places = [[i] for i in range(len(items) + 1)] if everywhere else []
    places += [sorted(source.choices(range(len(items) + 1), k=9)) for _ in range(20)]
    places.append(list(range(1, len(items))))
    return [[items[a:b] for a, b in pairwise([0, *cuts, len(items)])] for cuts in places]


@pytest.mark.parametrize(("name", "state", "answer", "parts"), GOLDENS, ids=NAMES)
def test_text_reads_the_same_however_it_is_cut(name, state, answer, parts):
    format, _ = bound(FORMATS[name], marked=False)
    assert parsed(format, state, in_pieces([answer])) == expected(parts)
    for pieces in cuttings(answer, random.Random(answer)):
        assert parsed(format, state, in_pieces(pieces)) == expected(parts), pieces


@pytest.mark.parametrize("special", [False, True], ids=["shown", "hidden"])
@pytest.mark.parametrize(("name", "state", "answer", "parts"), GOLDENS, ids=NAMES)
def test_tokens_read_the_same_however_they_are_cut(name, state, answer, parts, special):
    """Where the token of a marker has no text, what is no call shows without it."""
    format, tokenizer = bound(FORMATS[name], marked=True, special=special)
    wanted = without(expected(parts), markers(FORMATS[name]) if special else [])
    ids = tokenizer.encode(answer)
    source = random.Random(answer)
    for pieces in cuttings(ids, source, everywhere=not special):
        deltas = assembled(tokenizer, pieces, source.choice([1, 1, 3]))
        assert parsed(format, state, deltas) == wanted, pieces


@pytest.mark.parametrize(("name", "state", "answer", "parts"), GOLDENS, ids=NAMES)
def test_stop_strings_that_never_come_change_nothing(name, state, answer, parts):
    """They hold text back, so that marker tokens come before the text that stands before them."""
    format, tokenizer = bound(FORMATS[name], marked=True)
    stops = [answer[i : i + 9] + "\0" for i in range(0, len(answer), 5)][:16]
    ids = [[id] for id in tokenizer.encode(answer)] or [[]]
    assert parsed(format, state, assembled(tokenizer, ids, stop=stops)) == expected(parts)


def test_a_stop_string_cuts_what_is_behind_it():
    answer = '<think>a b</think>c d<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    whole = ["[a b]", "c d", "now"]
    for stop, shown in (
        ("b", ["[a ]"]),
        ("</think>", ["[a b]"]),
        ("d", ["[a b]", "c "]),
        ('{"na', ["[a b]", "c d<tool_call>"]),
        ("absent", whole),
    ):
        for special in (False, True):
            format, tokenizer = bound(FORMATS["hermes"], marked=True, special=special)
            ids = [[id] for id in tokenizer.encode(answer)]
            found = parsed(format, "may", assembled(tokenizer, ids, stop=[stop]))
            texts = [getattr(e, "name", None) or getattr(e, "text", "") for e in found]
            texts = [
                f"[{t}]" if type(e).__name__ == "Reasoning" else t
                for e, t in zip(found, texts, strict=True)
            ]
            if special and stop == "</think>":  # has no text, so it is never found
                shown = whole
            if special:
                shown = [one.removesuffix("<tool_call>") for one in shown]
            assert [t for t in texts if t and t != "{}"] == shown, (stop, special)


def test_a_text_that_spells_a_marker_token_is_text():
    format, tokenizer = bound(FORMATS["hermes"], marked=True)
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    plain = [id for char in call for id in tokenizer.encode(char)]
    deltas = assembled(tokenizer, [[id] for id in plain])
    assert parsed(format, "may", deltas) == expected([call])


def test_without_tools_calls_are_text():
    format, _ = bound(FORMATS["hermes"], marked=False)
    parser = format.parser(None, thinking("may"))
    answer = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert parser.feed(next(iter(in_pieces([answer])))) == expected([answer])


def test_ids_of_calls():
    assert call_id("kimi", "f", 3) == "functions.f:3"
    mistral = call_id("mistral", "f", 0)
    assert len(mistral) == 9 and mistral.isalnum()
    ids = {call_id("", "f", 0) for _ in range(100)}
    assert len(ids) == 100 and all(id.startswith("call_") for id in ids)


def test_an_id_that_the_model_wrote_is_kept():
    format, _ = bound(FORMATS["mistral_args"], marked=False)
    answer = "[TOOL_CALLS]now[CALL_ID]a1b2c3d4e[ARGS]{}"
    begin = format.parser(TOOLS).feed(next(iter(in_pieces([answer]))))[0]
    assert begin.id == "a1b2c3d4e"
