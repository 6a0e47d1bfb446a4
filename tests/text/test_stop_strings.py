"""Stop strings against a search of the whole text, character by character."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.stop_strings import StopStrings

STOPS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3, unique=True)
PIECES = st.lists(st.tuples(st.text("ab", max_size=4), st.booleans()), max_size=12)


def whole(pieces, stops, include):
    """(shown text, stop string found): ends first, then begins first."""
    text = ""
    for piece, armed in pieces:
        for char in piece:
            text += char
            found = [stop for stop in stops if text.endswith(stop)]
            if found and armed:
                stop = max(found, key=len)
                return (text if include else text[: -len(stop)]), stop
    return text, None


@settings(max_examples=500, deadline=None)
@given(pieces=PIECES, stops=STOPS, include=st.booleans())
def test_equals_a_search_of_the_whole_text(pieces, stops, include):
    search = StopStrings(tuple(stops), include)
    shown, seen = "", ""
    for piece, armed in pieces:
        shown += search.push(piece, armed)
        seen += piece
        if search.hit is not None:
            break
        held = seen[len(shown) :]
        assert seen.startswith(shown)
        longest = max(
            (n for stop in stops for n in range(len(stop)) if seen.endswith(stop[:n])), default=0
        )
        assert len(held) == longest
    assert (shown + search.flush(), search.hit) == whole(pieces, stops, include)


def test_no_stop_strings_hold_nothing_back():
    search = StopStrings(())
    assert search.push("anything") == "anything"
    assert search.flush() == ""


def test_the_string_that_ends_first_wins():
    search = StopStrings(("long stop", "st"))
    assert search.push("a long stop") == "a long "
    assert search.hit == "st"


def test_of_those_that_end_together_the_longest_wins():
    search = StopStrings(("op", "stop"))
    assert search.push("a stop") == "a "
    assert search.hit == "stop"
