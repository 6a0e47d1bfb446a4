"""Random calls in every format come back as they were; random garbage loses nothing."""

from __future__ import annotations

import json
import random
from typing import Any

from format_goldens import FORMATS, bound, markers, numbered, tool
from hypothesis import given, settings
from hypothesis import strategies as st
from test_format_goldens import assembled, cuttings, in_pieces, thinking

from octavo.text.formats.description import Description
from octavo.text.formats.events import CallArguments, CallBegin, CallEnd, Event, Text, merged
from octavo.text.formats.write import write

TOOLS = [tool("find", "s", "n", "i", "b", "l", "o"), tool("now"), tool("a-b_c.9", "s")]
BOUND = {name: bound(format, marked=False)[0] for name, format in FORMATS.items()}
MARKED = {name: bound(format, marked=True) for name, format in FORMATS.items()}

NAMES = st.sampled_from(sorted(FORMATS))
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"', "\\", "\n x\n", "}]", "{", "a, b)", "</a>", "12", "true", "null", "'", "`", "😀\u2028"]
)
KEYS = st.text("abc_XYZ019", min_size=1, max_size=5)
VALUES = st.recursive(
    TEXTS
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, width=32).filter(lambda number: abs(number) < 1e30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "s": TEXTS,
        "n": st.floats(allow_nan=False, allow_infinity=False, width=32),
        "i": st.integers(),
        "b": st.booleans(),
        "l": st.lists(VALUES, max_size=3),
        "o": st.dictionaries(KEYS, VALUES, max_size=3),
    },
)
CALLS = st.lists(
    st.tuples(st.just("find"), ARGUMENTS)
    | st.tuples(st.just("now"), st.just({}))
    | st.tuples(st.just("a-b_c.9"), st.fixed_dictionaries({"s": TEXTS})),
    min_size=1,
    max_size=3,
)


def parsed(format: Any, pieces: list[str], state: str = "closed") -> list[Event]:
    parser = format.parser(TOOLS, thinking(state), numbered)
    return merged([event for delta in in_pieces(pieces) for event in parser.feed(delta)])


def is_sayable(format: Description, calls: list[Any]) -> bool:
    """Values without escapes cannot hold what ends them."""
    if format.calls[0].syntax == "json":
        return True
    words = [word for literal in format.literals for word in literal.split() if len(word) > 2]
    said = json.dumps(calls, ensure_ascii=False)
    return not any(word in said for word in words)


@settings(max_examples=150)
@given(name=NAMES, calls=CALLS, seed=st.integers(0, 9))
def test_calls_come_back(name, calls, seed):
    format = FORMATS[name]
    calls = calls[:1] if format.calls[0].between is None else calls
    answer = write(format.calls[0], calls)
    if not is_sayable(format, calls):
        return
    events = parsed(BOUND[name], [answer])
    assert [e.name for e in events if isinstance(e, CallBegin)] == [name for name, _ in calls]
    arguments = [json.loads(e.text) for e in events if isinstance(e, CallArguments)]
    assert arguments == [arguments for _, arguments in calls]
    assert [e.index for e in events if isinstance(e, CallEnd)] == list(range(len(calls)))
    assert not [e for e in events if isinstance(e, Text)]
    for pieces in cuttings(answer, random.Random(seed), everywhere=False)[-5:]:
        assert parsed(BOUND[name], pieces) == events


def fragments(name: str) -> st.SearchStrategy[str]:
    """Pieces of the format, broken, and noise."""
    format = FORMATS[name]
    literals = [*format.literals, *markers(format), write(format.calls[0], [("now", {})])]
    parts = [
        literal[:size] for literal in literals for size in (1, len(literal) // 2, len(literal))
    ]
    noise = [
        "find",
        "now",
        "{",
        "}",
        '"name"',
        ": ",
        '"',
        "\\",
        "(",
        ")",
        "s=",
        "[",
        "]",
        "\n",
        " ",
    ]
    noise += ["\\u12", "\x00", "'", ",", "a", "é", "<", '{"name": "find", "arguments": {"s": ', "1"]
    return st.lists(st.sampled_from([*parts, *noise]) | TEXTS, max_size=14).map("".join)


@settings(max_examples=300)
@given(data=st.data(), state=st.sampled_from(["open", "may", "closed"]))
def test_garbage_reads_the_same_and_loses_nothing(data, state):
    name = data.draw(NAMES)
    answer = data.draw(fragments(name))
    events = parsed(BOUND[name], [answer], state)
    seed = data.draw(st.integers(0, 99))
    for pieces in cuttings(answer, random.Random(seed), everywhere=len(answer) < 40)[-30:]:
        assert parsed(BOUND[name], pieces, state) == events, pieces
    if state == "closed" and not FORMATS[name].silent and not _has_calls(events):
        assert events == ([Text(answer)] if answer else [])
    for event in events:
        if not isinstance(event, CallEnd):
            repr(event).encode()  # no lone surrogates
            getattr(event, "text", "").encode()


def _has_calls(events: list[Event]) -> bool:
    return any(isinstance(event, CallBegin) for event in events)


@settings(max_examples=150)
@given(name=NAMES, data=st.data())
def test_calls_that_ended_have_whole_arguments(name, data):
    answer = write(FORMATS[name].calls[0], [("now", {}), ("find", {"s": "x"})])
    at = data.draw(st.integers(0, len(answer)))
    events = parsed(BOUND[name], [answer[:at]])
    whole = {event.index for event in events if isinstance(event, CallEnd)}
    for event in events:
        if isinstance(event, CallArguments) and event.index in whole:
            assert json.loads(event.text) in ({}, {"s": "x"})


@settings(max_examples=150)
@given(name=NAMES, data=st.data())
def test_tokens_of_garbage(name, data):
    """Marker tokens and words in any order."""
    format, tokenizer = MARKED[name]
    tokens = [tokenizer.added_tokens[marker] for marker in markers(FORMATS[name])]
    words = [id for word in ("now", "find", '{"s": 1}', " ", "é") for id in tokenizer.encode(word)]
    ids = data.draw(st.lists(st.sampled_from([*tokens, *words]), max_size=12))
    whole = None
    for pieces in cuttings(ids, random.Random(0), everywhere=False)[-6:]:
        parser = format.parser(TOOLS, thinking("may"), numbered)
        deltas = list(assembled(tokenizer, pieces))
        events = merged([event for delta in deltas for event in parser.feed(delta)])
        assert whole is None or events == whole
        assert parser.reasoning_tokens <= len(ids)
        whole = events
